"""Admissible SNR paths: γ_i(t) for t in [0, 1], from 0 to a cut-off Γ (section 2.3).

The paper's paths run to infinity; ours stop at Γ, and the caller adds the remainder
(a reconstruction term in a likelihood, a final read-out in a sampler).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dsl._util.files import parse_json
from dsl.core.streams import Randomness, permutation
from dsl.core.types import SNR

SNR_MOST, TIME_LEAST = 1e6, 1e-9
"""Limits for a contour read from a file, so that its slopes do not overflow."""


@runtime_checkable
class SNRPath(Protocol):
    """A contour through SNR space, continuous and non-decreasing in every coordinate."""

    def __call__(self, t: Float[Tensor, "b"]) -> tuple[SNR, SNR]:
        """Return γ(t) and dγ/dt."""
        ...


@dataclass(frozen=True)
class Shared:
    """All tokens at one SNR: γ_i(t) = Γ t^power, which is ordinary continuous diffusion."""

    length: int
    snr_max: float = 100.0
    power: float = 1.0

    def __post_init__(self) -> None:
        if not (self.length > 0 and self.snr_max > 0 and self.power >= 1):
            raise ValueError(
                "a shared path needs length > 0, snr_max > 0 and power >= 1, "
                f"got {self.length}, {self.snr_max} and {self.power}"
            )

    def __call__(self, t: Float[Tensor, "b"]) -> tuple[SNR, SNR]:
        """Return γ(t) and dγ/dt."""
        snr = self.snr_max * t**self.power
        d_snr = self.snr_max * self.power * t ** (self.power - 1)
        return (
            snr.unsqueeze(-1).expand(-1, self.length),
            d_snr.unsqueeze(-1).expand(-1, self.length),
        )


@dataclass(frozen=True)
class RandomOrder:
    """One token after the other, each from 0 to Γ: a ROAR path."""

    order: Int[Tensor, "#b l"]
    """The positions in reveal order: one row for all sequences, or one per sequence."""
    snr_max: float = 100.0
    power: float = 1.0
    """Each token rises as Γ u^power while u goes from 0 to 1."""

    def __post_init__(self) -> None:
        length = self.order.shape[-1]
        positions = torch.arange(length, device=self.order.device)
        if not (self.order.sort(dim=-1).values == positions).all():
            raise ValueError(f"every row of `order` must be a permutation of 0 … {length - 1}")

    @classmethod
    def draw(
        cls, shape: tuple[int, int], snr_max: float = 100.0, *, generator: Randomness = None
    ) -> RandomOrder:
        """Draw one uniformly random order for each of b sequences of l tokens."""
        return cls(permutation(shape, generator=generator), snr_max)

    def __call__(self, t: Float[Tensor, "b"]) -> tuple[SNR, SNR]:
        """Return γ(t) and dγ/dt."""
        length = self.order.shape[-1]
        rank = self.order.argsort(dim=-1).to(t)
        phase = t.unsqueeze(-1) * length - rank  # of each token: before 0, rising, after 1
        # The token that is rising at t owns the derivative: phase in [0, 1), and at t = 1 the last.
        rising = (phase >= 0) & ((phase < 1) | ((rank == length - 1) & (phase <= 1)))
        phase = phase.clamp(0, 1)
        speed = self.snr_max * length * self.power * phase ** (self.power - 1)
        return self.snr_max * phase**self.power, speed * rising.to(t)


def sequential(length: int, snr_max: float = 100.0, power: float = 1.0) -> RandomOrder:
    """Reveal tokens from left to right: the autoregressive contour of A.5."""
    return RandomOrder(torch.arange(length).unsqueeze(0), snr_max, power)


@dataclass(frozen=True)
class Tabulated:
    """A path given by its corners, linear between them."""

    times: Float[Tensor, "k"]
    snr: Float[Tensor, "k l"]

    def __post_init__(self) -> None:
        k = self.times.shape[0]
        if k < 2 or self.times[0] != 0 or self.times[-1] != 1 or (self.times.diff() <= 0).any():
            raise ValueError("`times` must rise from 0 to 1 in at least two steps")
        if (self.snr[0] != 0).any() or (self.snr.diff(dim=0) < 0).any():
            raise ValueError("an admissible path starts at SNR 0 and never decreases")

    @classmethod
    def read(cls, path: Path, length: int) -> Tabulated:
        """Read a path for sequences of a length: JSON with "times" and "snr", a row for each."""
        data = parse_json(path.read_bytes(), str(path))
        try:
            times = torch.tensor(data["times"], dtype=torch.float64)
            snr = torch.tensor(data["snr"], dtype=torch.float64)
        except (ValueError, KeyError, TypeError, OverflowError, RuntimeError) as error:
            raise ValueError(
                f'{path} must hold JSON with "times" and "snr", a row of numbers for each time: '
                f"{' '.join(str(error).split())[:200]}"
            ) from error
        if times.ndim != 1 or tuple(snr.shape) != (len(times), length):
            raise ValueError(
                f'{path}: "snr" must have {length} numbers for each of the {times.numel()} '
                f'"times", got shape {tuple(snr.shape)}'
            )
        if not (times.isfinite().all() and (snr <= SNR_MOST).all()):
            raise ValueError(f"{path}: times must be finite, and SNRs at most {SNR_MOST:g}")
        made = cls(times, snr)
        if (times.diff() < TIME_LEAST).any():
            raise ValueError(f"{path}: two times must differ by {TIME_LEAST:g} at least")
        return made

    def __call__(self, t: Float[Tensor, "b"]) -> tuple[SNR, SNR]:
        """Return γ(t) and dγ/dt."""
        times, snr = self.times.to(t), self.snr.to(t)  # corners of any precision, on any device
        left = torch.searchsorted(times, t.contiguous(), right=True).sub(1)
        left = left.clamp(0, len(times) - 2)
        slope = snr.diff(dim=0)[left] / times.diff()[left].unsqueeze(-1)
        return snr[left] + slope * (t - times[left]).unsqueeze(-1), slope
