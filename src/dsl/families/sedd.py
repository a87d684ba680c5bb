"""SEDD: discrete diffusion by the ratios of probabilities, trained by score entropy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dsl.alpha import Schedule
from dsl.families.family import Family
from dsl.likelihoods.effort import Effort
from dsl.likelihoods.estimate import Estimator
from dsl.likelihoods.score_entropy import ScoreEntropy, corrupted, path_losses
from dsl.models.timed import TimedModel, TimedShape
from dsl.streams import Streams
from dsl.teacher_forcing import AtTime, Level
from dsl.training.objective import Loss, Objective, counted, stratified, tallied
from dsl.types import MASK, Logits, Mask, Tokens

LEAST_TIME = 1e-3
"""Training asks at no earlier time."""
FLOOR = 1e-3
"""α_1, which keeps σ = -log α finite."""
TIMES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Where calibration asks."""


@dataclass(frozen=True)
class Floored:
    """α = α_1 + (1 - α_1) β(t) of a schedule β; SEDD's log-linear noise if β = 1 - t."""

    inner: Schedule
    floor: float = FLOOR

    def __call__(self, t: Tensor) -> Tensor:
        """Return α(t)."""
        return self.floor + (1 - self.floor) * self.inner(t)

    def slope(self, t: Tensor) -> Tensor:
        """Return dα/dt."""
        return (1 - self.floor) * self.inner.slope(t)


@dataclass(frozen=True)
class SeddOptions:
    """Nothing: the objective is the bound. The noise and its schedule belong to the network."""


class SeddModel(TimedModel):
    """The network with a time, read as logarithms of score ratios."""

    @property
    def alpha(self) -> Schedule:
        """How many tokens are left alone at a time: some for ever."""
        return Floored(super().alpha)

    def log_score(self, tokens: Tokens, t: Float[Tensor, "b"]) -> Logits:
        """Return log q_t(x with v at position i) / q_t(x); a token's ratio to itself is 1.

        A mask's ratios are those of a uniform posterior, α/(1 - α)/v, times what the network says.
        At visible positions of a masked text the ratios are not trained, and nobody reads them.
        """
        log_score = self.at_time(tokens, t)
        if self.kernel.noise == "absorbing":
            alpha = self.alpha(t)
            scale = (alpha / (1 - alpha)).log() - math.log(self.vocab_size)
            log_score = log_score + scale.view(-1, 1, 1)
        own = tokens.unsqueeze(-1) == torch.arange(self.vocab_size, device=tokens.device)
        return log_score.masked_fill(own, 0.0)


class SeddObjective(Objective):
    """Denoising score entropy, weighted by σ'(t): the bound, but for its prior and first 1/1000."""

    model: SeddModel

    def __init__(self, model: SeddModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Corrupt each sequence to its own time, the times stratified over the global batch."""
        u = stratified(streams, places, batch, tokens.device).squeeze(1)
        t = (1 - LEAST_TIME) * u + LEAST_TIME
        noisy = corrupted(self.model, tokens, t, generator=streams)
        losses = path_losses(self.model, noisy, tokens, t)
        return Loss(losses.sum(), counted(tokens), tallied(losses))


@dataclass(frozen=True)
class AtScoreTime(AtTime):
    """The same corruption, and the clean token read off the score ratios."""

    def ask(
        self, network: Any, tokens: Tokens, *, generator: Streams
    ) -> tuple[Float[Tensor, "n v"], Mask]:
        """Corrupt the text and ask what each token is, as all the others tell it."""
        times = torch.full((len(tokens),), self.t, device=tokens.device)
        alpha = network.alpha(times)
        noisy = network.kernel.corrupt(tokens, alpha, generator=generator)
        log_score = network.log_score(noisy, times)
        if network.kernel.noise == "absorbing":  # the ratios of a mask are a multiple of p
            at = noisy == MASK
            return log_score[at], at
        at = torch.ones_like(noisy, dtype=torch.bool)
        return leave_one_out(log_score, alpha)[at], at


def leave_one_out(log_score: Logits, alpha: Float[Tensor, "b"]) -> Logits:
    """Return log p of the clean token given all other positions, under uniform noise.

    Ratios are to each other as α p + (1 - α)/v. A network's may lie below what noise alone gives,
    and p is 1e-6 there.
    """
    alpha = alpha.double().view(-1, 1, 1)
    marginal = log_score.double().softmax(dim=-1)
    p = (marginal - (1 - alpha) / log_score.shape[-1]) / alpha
    return p.clamp(min=1e-6).log()


class SeddFamily(Family):
    """Score entropy discrete diffusion."""

    name = "sedd"
    summary = "score ratios of discrete diffusion, by masks or any tokens: its own samplers"
    Shape = TimedShape
    Options = SeddOptions
    answers = frozenset({"score"})
    validated = ("score-entropy",)
    llama = False

    def build(self, shape: TimedShape) -> nn.Module:
        """Make an untrained network."""
        return SeddModel(shape)

    def objective(self, network: SeddModel, options: SeddOptions) -> Objective:
        """Train by score entropy."""
        return SeddObjective(network)

    def estimators(self, network: SeddModel, effort: Effort) -> Sequence[Estimator]:
        """Score by the bound that training minimises."""
        return [ScoreEntropy(effort.replicates, effort.draws, batch_size=effort.batch_size)]

    def levels(self, network: SeddModel) -> Sequence[Level]:
        """Ask at times of the network's own process."""
        return [AtScoreTime(t) for t in TIMES]
