"""The SNRs that training visits: continuous, endpoint, mixed (section 3.1, C.2, E.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.core.streams import Device, Randomness, normal, permutation, uniform
from dsl.core.types import SNR, Mask

TINY = 2.0**-53
"""The spacing of float64 below 1: a uniform number that is 0 or 1 is moved inside by it."""


@dataclass(frozen=True)
class LogNormal:
    """Continuous branch: ln γ ~ N(μ, σ²), without a cut-off (C.2)."""

    mu: float = 1.65
    sigma: float = 0.9
    shared: bool = False
    """One γ for the whole sequence instead of one per token."""

    def __post_init__(self) -> None:
        if self.sigma < 0:
            raise ValueError(f"sigma must be >= 0, got {self.sigma}")

    def sample(
        self, shape: tuple[int, int], *, generator: Randomness = None, device: Device = None
    ) -> SNR:
        """Draw γ for every position, or one γ for each sequence."""
        b, length = shape
        drawn = normal((b, 1 if self.shared else length), generator=generator, device=device)
        return (self.mu + self.sigma * drawn).exp().expand(b, length)

    def quantile(self, q: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        """Return the q-quantile of γ; q = 0 and q = 1 are moved just inside the interval."""
        inside = q.double().clamp(TINY, 1 - TINY)
        log_snr: Tensor = self.mu + self.sigma * torch.special.ndtri(inside)
        return log_snr.exp()


@dataclass(frozen=True)
class Roar:
    """Endpoint branch: k ~ U{0, …, l-1} positions are revealed, the rest are masked (E.1).

    Revealed tokens get γ ~ U(c γ_max, γ_max), masked ones γ ~ U(0, γ_min). `Roar.atomic()` is
    the limit {0, γ_max} of C.2.
    """

    snr_max: float = 100.0
    snr_min: float = 1.0
    c: float = 0.8

    def __post_init__(self) -> None:
        if not (0 <= self.snr_min <= self.c * self.snr_max and 0 < self.c <= 1):
            raise ValueError(
                "Roar needs 0 <= snr_min <= c * snr_max and 0 < c <= 1, "
                f"got snr_min={self.snr_min}, c={self.c}, snr_max={self.snr_max}"
            )

    @classmethod
    def atomic(cls, snr_max: float = 100.0) -> Roar:
        """Put all mass on the two endpoints {0, γ_max}."""
        return cls(snr_max=snr_max, snr_min=0.0, c=1.0)

    def sample(
        self, shape: tuple[int, int], *, generator: Randomness = None, device: Device = None
    ) -> SNR:
        """Draw a reveal set for each sequence, then γ near the endpoint of each position."""
        revealed = reveal_set(shape, generator=generator, device=device)
        return self.near(revealed, uniform(shape, generator=generator, device=device))

    def near(self, revealed: Mask, u: Float[Tensor, "b l"]) -> SNR:
        """Return γ at a share u of the interval at each position's end."""
        high = self.snr_max * (self.c + (1 - self.c) * u)
        return torch.where(revealed, high, self.snr_min * u)


@dataclass(frozen=True)
class Mixed:
    """The λ-mixture of both branches, which is the λ-mixture of their losses (equation 8)."""

    continuous: LogNormal = LogNormal()
    endpoint: Roar = Roar()
    weight: float = 0.9
    """λ, the share of the continuous branch; p_ROAR = 1 - λ."""
    per: Literal["sequence", "token"] = "sequence"
    """The unit that draws a branch: a sequence (algorithm 1), or a position (text of C.2)."""

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= 1:
            raise ValueError(f"weight must lie in [0, 1], got {self.weight}")

    def sample(
        self, shape: tuple[int, int], *, generator: Randomness = None, device: Device = None
    ) -> SNR:
        """Draw both branches and choose between them."""
        b, length = shape
        u = uniform((b, length if self.per == "token" else 1), generator=generator, device=device)
        continuous = self.continuous.sample(shape, generator=generator, device=device)
        endpoint = self.endpoint.sample(shape, generator=generator, device=device)
        return torch.where(u < 1 - self.weight, endpoint, continuous)


def reveal_set(
    shape: tuple[int, int], *, generator: Randomness = None, device: Device = None
) -> Mask:
    """Draw k ~ U{0, …, l-1} and a uniformly random set of k revealed positions (equation 7)."""
    b, length = shape
    u = uniform((b, 1), generator=generator, dtype=torch.float64, device=device)
    return permutation(shape, generator=generator, device=device) < (u * length).floor()
