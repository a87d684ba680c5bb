"""Continuous denoising in EDM's coordinates y = x + σε with z = y/σ², and the hybrid path (C.6)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.core.channel import natural, physical, snr_from_sigma
from dsl.core.denoiser import Continuous
from dsl.core.streams import Randomness, normal
from dsl.core.types import Noisy
from dsl.samplers.base import Chain, Sampler
from dsl.samplers.draw import Draw
from dsl.samplers.localize import denoise, walked
from dsl.samplers.masked import require_steps
from dsl.samplers.refine import Commit, Refine
from dsl.samplers.state import State

Slope = Callable[[State, Noisy, float], tuple[Noisy, State]]
"""dy/dσ at a state y and a noise level, and the walk's state, which counts the call."""

SIGMA_LEAST, SIGMA_MOST = 1e-3, 1e4
"""Noise levels whose squares and ratios a state of single precision can hold."""


@dataclass(frozen=True)
class Edm:
    """Follow the probability-flow ODE from σ_max to `stop` on Karras' grid."""

    num_steps: int
    sigma_max: float = 80.0
    stop: float = 0.1
    """The last noise level; 0.1 is SNR 100, the highest that training visits."""
    rho: float = 7.0
    heun: bool = True
    """Correct every step to second order, at the price of a second denoiser call."""
    churn: float = 0.0
    """How much noise is put back before every step."""
    churn_means: Literal["total", "factor"] = "total"
    """EDM's S_churn, shared by all steps and cut off at √2 - 1 each; or σ̂ = churn · σ itself."""
    churn_min: float = 0.0
    churn_max: float | None = None
    """The band of σ in which noise is put back; None is no upper end."""
    start: Literal["zero", "mean"] = "zero"
    """y_0 = σ_max ε as in the paper, or x̂(0) + σ_max ε, which corrects its missing mean for one
    more denoiser call."""
    asks: ClassVar[type] = Continuous

    def __post_init__(self) -> None:
        require_steps(self.num_steps)
        if not SIGMA_LEAST <= self.stop < self.sigma_max <= SIGMA_MOST:
            raise ValueError(
                f"EDM needs 0 < stop < sigma_max, both within {SIGMA_LEAST:g} … {SIGMA_MOST:g}, "
                f"got stop={self.stop}, sigma_max={self.sigma_max}"
            )
        if not 0.1 <= self.rho <= 100:
            raise ValueError(f"rho must lie in 0.1 … 100, got {self.rho}")
        factor = self.churn_means == "factor" and self.churn > 0
        if not 0 <= self.churn <= 1000 or (factor and not 1 <= self.churn <= 10):
            raise ValueError(
                f"churn must lie in 0 … 1000, and a factor in 1 … 10, got {self.churn}"
            )

    def steps(
        self, denoiser: Continuous, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Integrate dy/dσ = (y - x̂(y/σ²))/σ, by Euler's or Heun's method."""
        sigmas = karras(self.num_steps, self.stop, self.sigma_max, self.rho)
        slope = partial(_slope, denoiser)
        y, state = self._initial(denoiser, start, sigmas[start.step], generator)
        for sigma, sigma_next in zip(
            sigmas[start.step : -1], sigmas[start.step + 1 :], strict=True
        ):
            sigma_hat = self._inflated(sigma)
            if sigma_hat > sigma:
                eps = normal(y.shape, generator=generator, dtype=y.dtype, device=y.device)
                y = y + math.sqrt(sigma_hat**2 - sigma**2) * eps
            y_next, state = follow(slope, state, y, sigma_hat, sigma_next, heun=self.heun)
            level = level_of(sigma_next, state)
            state = walked(denoiser, state, natural(y_next, level), snr_from_sigma(level))
            assert state.z is not None
            y = physical(state.z.double(), level)  # continue from exactly the yielded state
            yield state

    def _initial(
        self, denoiser: Continuous, start: State, sigma: float, generator: Randomness
    ) -> tuple[Noisy, State]:
        level = level_of(sigma, start)
        if start.z is not None:
            return physical(start.z.double(), level), start
        b, length = start.tokens.shape
        z = denoiser.codebook.new_zeros(b, length, denoiser.codebook.shape[1]).double()
        mean, state = denoise(denoiser, start, z) if self.start == "mean" else (z, start)
        eps = normal(z.shape, generator=generator, dtype=z.dtype, device=z.device)
        return mean + sigma * eps, state

    def _inflated(self, sigma: float) -> float:
        above = self.churn_max is not None and sigma > self.churn_max
        if self.churn == 0 or sigma < self.churn_min or above:
            return sigma
        if self.churn_means == "factor":
            return sigma * self.churn
        return sigma * (1 + min(self.churn / self.num_steps, math.sqrt(2) - 1))


def karras(steps: int, sigma_min: float, sigma_max: float, rho: float = 7.0) -> list[float]:
    """Return the steps + 1 noise levels of Karras' grid from σ_max down to σ_min."""
    high, low = sigma_max ** (1 / rho), sigma_min ** (1 / rho)
    inner = [(high + i / steps * (low - high)) ** rho for i in range(1, steps)]
    return [sigma_max, *inner, sigma_min]


def follow(
    slope: Slope, state: State, y: Noisy, sigma: float, sigma_next: float, *, heun: bool
) -> tuple[Noisy, State]:
    """Move y from σ to the next noise level, by Euler's or Heun's method."""
    d_sigma = sigma_next - sigma
    first, state = slope(state, y, sigma)
    y_next = y + d_sigma * first
    if not heun:
        return y_next, state
    second, state = slope(state, y_next, sigma_next)
    return y + d_sigma * (first + second) / 2, state


def _slope(denoiser: Continuous, state: State, y: Noisy, sigma: float) -> tuple[Noisy, State]:
    x_hat, state = denoise(denoiser, state, natural(y, level_of(sigma, state)))
    return (y - x_hat) / sigma, state


def level_of(level: float, state: State) -> Float[Tensor, "b l"]:
    """Return one level for all positions."""
    return torch.full_like(state.confidence, level)


def edm(
    num_steps: int,
    *,
    sigma_max: float = 80.0,
    sigma_min: float = 0.1,
    rho: float = 7.0,
    heun: bool = True,
    churn: float = 0.0,
    churn_means: Literal["total", "factor"] = "total",
    start: Literal["zero", "mean"] = "zero",
    draw: Draw = Draw(),
) -> Sampler:
    """EDM's probability-flow ODE, then one read-out."""
    walk = Edm(num_steps, sigma_max, sigma_min, rho, heun, churn, churn_means, start=start)
    return Chain((walk, Commit(draw)))


SIGMA_SWITCH = {
    # Table hybrid_full, the more detailed of the two; the short table has .46 for (32, 16).
    (16, 16): 0.49,
    (16, 32): 0.49,
    (16, 48): 0.49,
    (32, 16): 0.45,
    (32, 32): 0.46,
    (32, 48): 0.46,
}


def hybrid(
    num_steps: tuple[int, int],
    *,
    sigma_switch: float | None = None,
    sigma_max: float = 10.0,
    rho: float = 7.0,
    heun: bool = True,
    churn: float = 1.41,
    churn_means: Literal["total", "factor"] = "total",
    r_min: float = 0.2,
    r_max: float = 0.8,
    r_end: float = 0.0,
    draw: Draw = Draw(temperature=0.8),
) -> Sampler:
    """Continuous to σ_switch, commit, then refine the uncertain tokens (C.6).

    σ_switch is the paper's for its six budgets and 0.47, between them, for any other.
    """
    continuous, discrete = num_steps
    if sigma_switch is None:
        sigma_switch = SIGMA_SWITCH.get((continuous, discrete), 0.47)
    walk = Edm(continuous, sigma_max, sigma_switch, rho, heun, churn, churn_means)
    return Chain((walk, Commit(draw), Refine(discrete, draw, r_min, r_max, r_end)))
