"""MD4: masked diffusion with a time input and a choice of schedules (Shi et al., 2024)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dsl.apps.zoo.kernel import Kernel
from dsl.apps.zoo.timed import Timed, TimedFamily, TimedModel, TimedShape
from dsl.core import MASK, Mask, Randomness, Streams, Tokens, time_of, uniform
from dsl.families import LEAST_TIME, Loss, Objective, counted, moments, surprise, tallied
from dsl.likelihoods import (
    Effort,
    Estimate,
    Estimator,
    Kind,
    cross_entropy,
    require_draws,
    require_logits,
)


@dataclass(frozen=True)
class Md4Shape(TimedShape):
    """The shape of a masked network with a time input, including its schedule."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise != "absorbing":
            raise ValueError(f"masked diffusion needs absorbing noise, got {self.noise}")


@dataclass(frozen=True)
class Md4Options:
    """MD4's objective has no options."""


class Md4Objective(Objective):
    """The continuous-time bound from t = 1 down to 1e-3.

    The reconstruction term below 1e-3 does not depend on the weights and is left out.
    """

    model: TimedModel

    def __init__(self, model: TimedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Mask each sequence to its own time, the times stratified over the global batch."""
        device = tokens.device
        at = moments(self.model.alpha, streams, places, batch, device)
        hidden = uniform(tokens.shape, generator=streams, device=device) < at.gone
        logits = self.model.at_time(tokens.masked_fill(hidden, MASK), at.t.squeeze(1))
        losses = surprise(logits[hidden], tokens, hidden)
        weighted = (1 - LEAST_TIME) * losses / at.wait
        parts = tallied(weighted) | {"masked": (losses.detach().sum(), hidden.sum())}
        return Loss(weighted.sum(), counted(tokens), parts)


@dataclass(frozen=True)
class MaskedBound:
    """The bound as an integral over the times at which a token of the text is masked.

    At uniform times the weight 1/g, g = 1 - α, has infinite variance. Instead a random token i is
    masked at g = u^{1/w_i}, the others if they were before, and the masked set S has the weight
    l / Σ_S w: the same integral with bounded weights. If all w are equal, |S| - 1 is uniform, as
    in ROAR.
    """

    replicates: int = 8
    draws: int = 8
    """Times per replicate, with u in each of `draws` strata."""
    batch_size: int = 256
    label: ClassVar[str] = "nelbo"
    kind: ClassVar[Kind] = "bound"

    def __post_init__(self) -> None:
        require_draws(self.replicates, self.draws)

    @torch.no_grad()
    def __call__(
        self, denoiser: Timed, tokens: Tokens, *, generator: Randomness = None
    ) -> Estimate:
        """Estimate the bound of every sequence."""
        if denoiser.kernel.noise != "absorbing":
            raise ValueError(f"this bound needs absorbing noise, got {denoiser.kernel.noise}")
        b, length = tokens.shape
        r, m = self.replicates, self.draws
        w = self.pace(denoiser.kernel).to(tokens.device, torch.float64)
        gone, hidden = self._moments(tokens, w, generator)
        many = tokens.view(b, 1, 1, length).expand(b, r, m, length).reshape(-1, length)
        t, hidden = time_of(denoiser.alpha, gone).flatten(), hidden.reshape(-1, length)
        parts = zip(*(x.split(self.batch_size) for x in (many, hidden, t)), strict=True)
        found = [rates(denoiser, rows, at, times, w) for rows, at, times in parts]
        weight = length / (w[many] * hidden).sum(dim=1, keepdim=True)
        return Estimate((weight * torch.cat(found)).reshape(b, r, m, length).mean(dim=2))

    def pace(self, kernel: Kernel) -> Float[Tensor, "v"]:
        """Return w, the relative pace at which each token is masked: 1 for all."""
        return torch.ones(kernel.vocab_size)

    def _moments(
        self, tokens: Tokens, w: Float[Tensor, "v"], generator: Randomness
    ) -> tuple[Float[Tensor, "b r m"], Bool[Tensor, "b r m l"]]:
        """Draw g and the positions masked by then; one of them is masked at this moment."""
        b, length = tokens.shape
        shape = (b, self.replicates, self.draws)
        device = tokens.device
        draw = partial(uniform, generator=generator, dtype=torch.float64, device=device)
        u = (torch.arange(self.draws, device=device) + draw(shape)) / self.draws
        first = (draw(shape) * length).long()
        own = w[tokens].view(b, 1, 1, length)
        gone = u ** (1 / w[tokens.gather(1, first.flatten(1))].view(shape))
        hidden = draw((*shape, length)) < gone.unsqueeze(-1) ** own
        return gone, hidden.scatter(-1, first.unsqueeze(-1), True)


def rates(
    denoiser: Timed, tokens: Tokens, at: Mask, t: Float[Tensor, "b"], w: Float[Tensor, "v"]
) -> Float[Tensor, "b l"]:
    """Return w_i (-log μ_i(x_i)) + Σ_v w_v μ_i(v) - w_i at masked positions, 0 elsewhere."""
    logits = denoiser.at_time(tokens.masked_fill(at, MASK), t)[at].double()
    require_logits(logits)
    own = w[tokens[at]]
    found = torch.zeros(tokens.shape, dtype=torch.float64, device=tokens.device)
    found[at] = own * cross_entropy(logits, tokens[at]) + logits.softmax(dim=-1) @ w - own
    return found


class Md4Family(TimedFamily):
    """Masked diffusion with a time input."""

    name = "md4"
    summary = "masked diffusion with a time input: its own sampler and bound"
    Shape = Md4Shape
    Options = Md4Options
    Network = TimedModel
    validated = ("nelbo",)

    def objective(self, network: TimedModel, options: Md4Options) -> Objective:
        """Train by the bound."""
        return Md4Objective(network)

    def estimators(self, network: TimedModel, effort: Effort) -> Sequence[Estimator]:
        """Score by the bound."""
        return [MaskedBound(effort.replicates, effort.draws, effort.batch_size)]
