"""α(t): the share of tokens still uncorrupted at time t of a discrete process, from 1 to 0."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

ScheduleName = Literal["linear", "cosine", "late-cosine", "polynomial"]


@runtime_checkable
class Schedule(Protocol):
    """The noise schedule of a discrete process: α(0) = 1, and α(1) is 0 or close to it."""

    def __call__(self, t: Tensor) -> Tensor:
        """Return α(t)."""
        ...

    def slope(self, t: Tensor) -> Tensor:
        """Return dα/dt, which is at most 0."""
        ...


@dataclass(frozen=True)
class Linear:
    """α = 1 - t: MDLM's log-linear schedule."""

    def __call__(self, t: Tensor) -> Tensor:
        """Return α(t)."""
        return 1 - t

    def slope(self, t: Tensor) -> Tensor:
        """Return dα/dt."""
        return -torch.ones_like(t)


@dataclass(frozen=True)
class Cosine:
    """α = 1 - cos(π/2 (1 - t)): α falls fast early and slowly late (MD4)."""

    def __call__(self, t: Tensor) -> Tensor:
        """Return α(t)."""
        return 1 - torch.cos(math.pi / 2 * (1 - t))

    def slope(self, t: Tensor) -> Tensor:
        """Return dα/dt."""
        return -math.pi / 2 * torch.sin(math.pi / 2 * (1 - t))


@dataclass(frozen=True)
class LateCosine:
    """α = cos(π/2 (t + o)/(1 + o)), scaled to α(0) = 1: falls mostly late (Hoogeboom).

    Its square is the cosine schedule of Gaussian diffusion.
    """

    offset: float = 0.008

    def __call__(self, t: Tensor) -> Tensor:
        """Return α(t)."""
        # written as a sine of 1 - t, so that α(1) is exactly 0 without rounding error
        quarter = math.pi / 2 / (1 + self.offset)
        return torch.sin(quarter * (1 - t)) / math.sin(quarter)

    def slope(self, t: Tensor) -> Tensor:
        """Return dα/dt."""
        quarter = math.pi / 2 / (1 + self.offset)
        return -quarter * torch.cos(quarter * (1 - t)) / math.sin(quarter)


@dataclass(frozen=True)
class Polynomial:
    """α = 1 - t^w; w = 1 is linear (MD4).

    With w < 1 it falls so fast near t = 0 that many tokens are already masked at the smallest time
    used in training and sampling.
    """

    power: float = 2.0

    def __post_init__(self) -> None:
        if not 1 <= self.power <= 100:
            raise ValueError(f"the power of a schedule must lie in [1, 100], got {self.power}")

    def __call__(self, t: Tensor) -> Tensor:
        """Return α(t)."""
        return 1 - t**self.power

    def slope(self, t: Tensor) -> Tensor:
        """Return dα/dt."""
        return -self.power * t ** (self.power - 1)


Named = Linear | Cosine | LateCosine | Polynomial
"""The named schedules."""


def schedule(name: ScheduleName, power: float = 2.0) -> Named:
    """Build a schedule from its name; `power` is used by the polynomial only."""
    if name == "polynomial":
        return Polynomial(power)
    named: dict[str, Named] = {
        "linear": Linear(),
        "cosine": Cosine(),
        "late-cosine": LateCosine(),
    }
    return named[name]


def time_of(alpha: Schedule, gone: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return the times at which these shares of the tokens are corrupted: 1 - α(t) = gone.

    Uses bisection, because a schedule has no inverse; 60 halvings exhaust float64 precision.
    """
    early, late = torch.zeros_like(gone), torch.ones_like(gone)
    for _ in range(60):
        middle = (early + late) / 2
        before = 1 - alpha(middle) < gone
        early, late = torch.where(before, middle, early), torch.where(before, late, middle)
    return late
