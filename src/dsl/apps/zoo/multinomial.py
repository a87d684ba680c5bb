"""Multinomial diffusion: D3PM's uniform case, which came before it."""

from __future__ import annotations

from dataclasses import dataclass

from dsl.apps.zoo.d3pm import D3pmFamily, D3pmOptions, D3pmShape
from dsl.apps.zoo.kernel import Noise
from dsl.apps.zoo.protocols import Replaced
from dsl.core import ScheduleName


@dataclass(frozen=True)
class MultinomialShape(D3pmShape):
    """The shape of a network for tokens that become any other."""

    noise: Noise = "uniform"
    schedule: ScheduleName = "late-cosine"


@dataclass(frozen=True)
class MultinomialOptions(D3pmOptions):
    """The bound alone, as published; λ brings D3PM's auxiliary term in."""

    hybrid: float = 0.0


class MultinomialFamily(D3pmFamily):
    """Multinomial diffusion."""

    name = "multinomial"
    summary = "discrete diffusion in T steps from any token to any: its own sampler and bound"
    protocol = Replaced
    Shape = MultinomialShape
    Options = MultinomialOptions
