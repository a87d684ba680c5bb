"""How likely a visible token is sent back to [MASK] in a step: the σ_t of ReMDM."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.sampling.schedule import Interval
from dsl.sampling.state import State


@dataclass(frozen=True)
class Never:
    """MDLM: a revealed token stays."""

    def __call__(self, step: Interval, state: State) -> Float[Tensor, "b l"]:
        """Return σ = 0."""
        return _constant(0.0, state)


@dataclass(frozen=True)
class ForwardBackward:
    """FB: undo as much of the forward process as the step had done, σ = (α_s - α_t)/α_t."""

    official: bool = False
    """Do not cap σ at σ_max, as ReMDM's code does not. They differ in the last step, where σ_max
    is almost 0: it remasks 1/T of the positions, which noise removal then fills greedily."""

    def __call__(self, step: Interval, state: State) -> Float[Tensor, "b l"]:
        """Return σ."""
        sigma = (step.alpha_s - step.alpha_t) / step.alpha_t if step.alpha_t > 0 else 1.0
        return _constant(sigma if self.official else min(sigma, largest(step)), state)


@dataclass(frozen=True)
class Cap:
    """ReMDM-cap: σ = min(η, σ_max). In a flat stretch of α it is ReMDM-loop's constant η."""

    eta: float = 0.008

    def __post_init__(self) -> None:
        _require_eta(self.eta)

    def __call__(self, step: Interval, state: State) -> Float[Tensor, "b l"]:
        """Return σ."""
        return _constant(min(self.eta, largest(step)), state)


@dataclass(frozen=True)
class Rescale:
    """ReMDM-rescale: σ = η σ_max."""

    eta: float = 0.015

    def __post_init__(self) -> None:
        _require_eta(self.eta)

    def __call__(self, step: Interval, state: State) -> Float[Tensor, "b l"]:
        """Return σ."""
        return _constant(self.eta * largest(step), state)


@dataclass(frozen=True)
class Confidence:
    """ReMDM-conf: share σ_max among the visible tokens, most of it to those drawn least surely.

    The share is a softmax over the positions of -p, p being the probability with which the token
    was drawn; so one token is expected to be remasked in a step, at the most.
    """

    def __call__(self, step: Interval, state: State) -> Float[Tensor, "b l"]:
        """Return σ for every position."""
        doubt = (-state.confidence).masked_fill(state.masked | state.fixed, -torch.inf)
        # Where nothing is visible the softmax is 0/0: nobody to remask.
        return doubt.softmax(dim=-1).nan_to_num(0.0) * largest(step)


Remask = Never | ForwardBackward | Cap | Rescale | Confidence


def largest(step: Interval) -> float:
    """Return σ_max = min(1, (1 - α_s)/α_t), beyond which no reveal probability could make up."""
    return min(1.0, (1 - step.alpha_s) / step.alpha_t) if step.alpha_t > 0 else 1.0


def _constant(sigma: float, state: State) -> Float[Tensor, "b l"]:
    return torch.full_like(state.confidence, sigma)


def _require_eta(eta: float) -> None:
    if not 0 <= eta <= 1:
        raise ValueError(f"eta must lie in [0, 1], got {eta}")
