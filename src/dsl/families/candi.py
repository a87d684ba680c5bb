"""CANDI: masks and Gaussian noise at once, each with its own schedule.

At time t a token is clean with probability 1 - t; otherwise it is seen through noise of SNR γ(t).
The noise is the localization channel's, so a hidden token's state is z = γx + √γ ε.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dsl.alpha import Linear
from dsl.channel import observe
from dsl.denoiser import Endpoints, Mixed, posterior_mean
from dsl.families.family import Family
from dsl.families.masking import masked
from dsl.likelihoods.effort import Effort
from dsl.likelihoods.estimate import Estimator
from dsl.likelihoods.mixed_bound import MixedBound
from dsl.models.candi import CandiModel, CandiShape
from dsl.models.config import NetworkShape, codebook_for
from dsl.streams import Randomness, Streams, uniform
from dsl.teacher_forcing import Level
from dsl.training.objective import Loss, Objective, counted, surprise, tallied
from dsl.types import MASK, Mask, Tokens


@dataclass(frozen=True)
class CandiOptions:
    """What CANDI's objective leaves open."""

    loss: Literal["reveals", "bound"] = "reveals"
    """What is minimised: the cost of the reveals, -log p / t, as published; or that of the Gaussian
    steps besides, which makes it a bound. The best network is the same."""


class CandiObjective(Objective):
    """What the reveals cost, and the Gaussian steps: the bound without its constant."""

    model: CandiModel

    def __init__(self, model: CandiModel, config: CandiOptions) -> None:
        super().__init__()
        self.model, self.config = model, config

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Hide tokens of each sequence up to its own time, and ask what they were."""
        at, hidden = masked(Linear(), tokens, streams, places, batch)
        t = at.t
        state = mixture(self.model, tokens, hidden, t.squeeze(1), streams)
        logits = self.model.at_mixture(state, t.squeeze(1))[hidden].float()
        right = tokens[hidden]
        losses = surprise(logits, tokens, hidden)
        codebook = self.model.codebook
        squared = torch.zeros(tokens.shape, device=tokens.device)
        squared[hidden] = (codebook[right] - posterior_mean(logits, codebook)).square().sum(dim=-1)
        reveals, steps = losses / t, -0.5 * self.model.snr_slope(t) * squared
        parts = tallied(reveals + steps) | {
            "masked": (losses.detach().sum(), hidden.sum()),
            "error": (squared.detach().sum(), hidden.sum()),
        }
        wanted = reveals if self.config.loss == "reveals" else reveals + steps
        return Loss(wanted.sum(), counted(tokens), parts)


def mixture(
    network: Mixed, tokens: Tokens, hidden: Mask, t: Float[Tensor, "b"], generator: Randomness
) -> Endpoints:
    """Show a text with some of its tokens through the noise of a time."""
    x = network.codebook[tokens]
    snr = network.snr_at(t).unsqueeze(1) * hidden
    return Endpoints(
        tokens.masked_fill(hidden, MASK), observe(x, snr.to(x.dtype), generator=generator)
    )


@dataclass(frozen=True)
class AtMixture:
    """Tokens are hidden as by a time, and asked about through its noise."""

    t: float

    @property
    def label(self) -> str:
        """The time."""
        return f"t={self.t:g}"

    def ask(
        self, network: Any, tokens: Tokens, *, generator: Streams
    ) -> tuple[Float[Tensor, "n v"], Mask]:
        """Hide a share t of the tokens, and ask what they were."""
        at = uniform(tokens.shape, generator=generator, device=tokens.device) < self.t
        times = torch.full((len(tokens),), self.t, device=tokens.device)
        state = mixture(network, tokens, at, times, generator)
        return network.at_mixture(state, times)[at], at


class CandiFamily(Family):
    """Masks and noise."""

    name = "candi"
    summary = "masked diffusion whose masked tokens shine through noise: its own sampler and bound"
    Shape = CandiShape
    Options = CandiOptions
    answers = frozenset({"mixed"})
    validated = ("mixed-bound",)
    llama = False

    def build(self, shape: CandiShape) -> nn.Module:
        """Make an untrained network."""
        return CandiModel(shape)

    def shape(self, vocab_size: int, length: int, chosen: Mapping[str, Any]) -> NetworkShape:
        """Complete a shape; the codebook is a simplex where that is affordable."""
        return super().shape(vocab_size, length, {**codebook_for(vocab_size, chosen), **chosen})

    def objective(self, network: CandiModel, options: CandiOptions) -> Objective:
        """Train by the cost of the reveals, or by the bound."""
        return CandiObjective(network, options)

    def estimators(self, network: CandiModel, effort: Effort) -> Sequence[Estimator]:
        """Score by the bound of its own process."""
        return [MixedBound(effort.replicates, effort.draws, effort.batch_size)]

    def levels(self, network: CandiModel) -> Sequence[Level]:
        """Ask at five times."""
        return [AtMixture(t) for t in (0.1, 0.3, 0.5, 0.7, 0.9)]
