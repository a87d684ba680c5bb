"""Multinomial diffusion: D3PM with uniform noise (Hoogeboom et al., 2021)."""

from __future__ import annotations

from dataclasses import dataclass

from dsl.apps.zoo.d3pm import D3pmFamily, D3pmOptions, D3pmShape
from dsl.apps.zoo.kernel import Noise
from dsl.apps.zoo.timed import Replaced
from dsl.core import ScheduleName


@dataclass(frozen=True)
class MultinomialShape(D3pmShape):
    """The shape of a network for uniform noise."""

    noise: Noise = "uniform"
    schedule: ScheduleName = "late-cosine"


@dataclass(frozen=True)
class MultinomialOptions(D3pmOptions):
    """The bound alone, as published; λ > 0 adds D3PM's auxiliary term."""

    hybrid: float = 0.0


class MultinomialFamily(D3pmFamily):
    """Multinomial diffusion."""

    name = "multinomial"
    summary = "discrete diffusion in T steps from any token to any: its own sampler and bound"
    protocol = Replaced
    Shape = MultinomialShape
    Options = MultinomialOptions
