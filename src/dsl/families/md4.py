"""MD4: masked diffusion with a network that is told the time, along a schedule of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from dsl.families.family import Family
from dsl.families.masking import LEAST_TIME, moments
from dsl.likelihoods.effort import Effort
from dsl.likelihoods.estimate import Estimator
from dsl.likelihoods.masked_bound import MaskedBound
from dsl.models.timed import TimedModel, TimedShape
from dsl.streams import Streams, uniform
from dsl.teacher_forcing import AtTime, Level
from dsl.training.objective import Loss, Objective, counted, surprise, tallied
from dsl.types import MASK, Tokens

TIMES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Where confidence is judged."""


@dataclass(frozen=True)
class Md4Shape(TimedShape):
    """The shape of a masked network with a time; its schedule is part of it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise != "absorbing":
            raise ValueError(f"masked diffusion has absorbing noise, got {self.noise}")


@dataclass(frozen=True)
class Md4Options:
    """MD4's objective leaves nothing open."""


class Md4Objective(Objective):
    """The continuous-time bound from t = 1 down to 1e-3, the network being told t.

    What is left below, the reconstruction, depends on no weight and is left out.
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


class Md4Family(Family):
    """Masked diffusion with a time."""

    name = "md4"
    summary = "masked diffusion that is told the time: its own sampler and bound"
    Shape = Md4Shape
    Options = Md4Options
    answers = frozenset({"time"})
    validated = ("nelbo",)
    llama = False

    def build(self, shape: Md4Shape) -> nn.Module:
        """Make an untrained network."""
        return TimedModel(shape)

    def objective(self, network: TimedModel, options: Md4Options) -> Objective:
        """Train by the bound."""
        return Md4Objective(network)

    def estimators(self, network: TimedModel, effort: Effort) -> Sequence[Estimator]:
        """Score by the bound."""
        return [MaskedBound(effort.replicates, effort.draws, effort.batch_size)]

    def levels(self, network: TimedModel) -> Sequence[Level]:
        """Ask at times."""
        return [AtTime(t) for t in TIMES]
