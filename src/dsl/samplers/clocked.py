"""Samplers for networks with an SNR input: ancestral and probability-flow ODE."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch

from dsl.core.channel import natural, observe, physical, snr_from_sigma
from dsl.core.denoiser import (
    Clocked,
    listens,
    posterior_mean,
    recalled,
    require_clocked,
    require_logits,
)
from dsl.core.streams import Randomness, normal
from dsl.core.types import Logits, Noisy
from dsl.samplers.draw import Draw
from dsl.samplers.edm import follow, karras, level_of
from dsl.samplers.masked import require_steps
from dsl.samplers.refine import resample
from dsl.samplers.state import State


@dataclass(frozen=True)
class ClockedAncestral:
    """VDM's ancestral sampler, for networks with an SNR input.

    In the coordinate z = γx + √γ ε its Gaussian steps are z + x̂ dγ + √dγ ε, those of the
    localization SDE; the difference is that the network takes γ as input. A self-conditioned
    network also gets x̂ of the previous step.
    """

    num_steps: int
    power: float = 2.0
    """Step k is at γ_min + (γ_max - γ_min) (k/(T-1))^power."""
    draw: Draw = Draw()
    asks: ClassVar[type] = Clocked

    def __post_init__(self) -> None:
        require_steps(self.num_steps)
        if not 0.01 <= self.power <= 100:
            raise ValueError(f"power must lie in 0.01 … 100, got {self.power}")

    def steps(
        self, denoiser: Clocked, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Take T - 1 Gaussian steps and draw the tokens at the end: T forwards."""
        clocked = require_clocked(denoiser)
        low, high = clocked.snr_range
        grid = [
            low + (high - low) * (k / max(1, self.num_steps - 1)) ** self.power
            for k in range(self.num_steps)
        ]
        state = start
        for snr in grid[start.step :]:
            z = self._pinned(clocked, state, snr, generator)
            logits, x_hat, state = ask_at(clocked, state, z, snr)
            state = replace(state, step=state.step + 1)
            if state.step == self.num_steps:
                yield read_out(state, logits, self.draw, generator)
                return
            d_snr = grid[state.step] - snr
            z = z + observe(x_hat, level_of(d_snr, state), generator=generator)
            state = replace(state, z=z, snr=level_of(grid[state.step], state))
            yield state

    def _pinned(self, clocked: Clocked, state: State, snr: float, generator: Randomness) -> Noisy:
        """Return the state at this SNR, known tokens observed at it as training did.

        This "replacement" only approximates conditioning: a network with one SNR input for
        all positions cannot represent that one of them is certain. DSL can.
        """
        x = _known(clocked, state)
        eps = normal(x.shape, generator=generator, dtype=x.dtype, device=x.device)
        known = snr * x + snr**0.5 * eps
        noise = (snr * (1 + snr)) ** 0.5 * eps  # of unit variance in VP's own coordinate
        z = noise if state.z is None else state.z.double()
        return torch.where(state.fixed.unsqueeze(-1), known, z)


def ask_at(clocked: Clocked, state: State, z: Noisy, snr: float) -> tuple[Logits, Noisy, State]:
    """Return logits and x̂ at an SNR, and the state that counts the call.

    For self-conditioned networks x̂ is kept in the state's memory for the next call.
    """
    with torch.no_grad():
        clock = z.new_full((len(z),), snr).float()
        logits = recalled(clocked, z.float(), clock, state.memory).double()
    require_logits(logits)
    x_hat = posterior_mean(logits, clocked.codebook.detach().double())
    asked = state.free.any(dim=1).long()
    memory = x_hat.float() if listens(clocked) else None
    return logits, x_hat, replace(state, nfe=state.nfe + asked, memory=memory)


def read_out(state: State, logits: Logits, draw: Draw, generator: Randomness) -> State:
    """Draw a token at every free position: the end of the walk."""
    done = replace(state, z=None, snr=None, memory=None)
    return resample(done, logits[state.free], draw, state.free, generator)


@dataclass(frozen=True)
class ClockedOde:
    """The probability-flow ODE of networks with an SNR input: T - 1 steps and a read-out.

    It follows dy/dσ = (y - x̂)/σ from the first SNR to the last, then draws the tokens.

    The coordinate is EDM's, y = z/γ = x + σε with σ = 1/√γ, and so is the grid. Known tokens are
    x̂ = x: their y = x + σε keeps its ε, along a straight line. A self-conditioned network
    also gets x̂ of the previous call.
    """

    num_steps: int
    rho: float = 7.0
    heun: bool = True
    """Correct every step to second order, at the price of a second call."""
    draw: Draw = Draw()
    asks: ClassVar[type] = Clocked

    def __post_init__(self) -> None:
        require_steps(self.num_steps)
        if not 0.1 <= self.rho <= 100:
            raise ValueError(f"rho must lie in 0.1 … 100, got {self.rho}")

    def steps(
        self, denoiser: Clocked, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Take T - 1 steps of the ODE and draw the tokens at the end."""
        if start.step >= self.num_steps:
            return
        clocked = require_clocked(denoiser)
        sigmas = self._grid(clocked)
        state = start if start.step else _noise(clocked, start, sigmas[0], generator)
        slope = partial(_slope, clocked)
        for k in range(start.step, self.num_steps - 1):
            assert state.z is not None
            y = physical(state.z, level_of(sigmas[k], state))
            y, state = follow(slope, state, y, sigmas[k], sigmas[k + 1], heun=self.heun)
            level = level_of(sigmas[k + 1], state)
            z, snr = natural(y, level), snr_from_sigma(level)
            state = replace(state, z=z, snr=snr, step=k + 1)
            yield state
        assert state.z is not None
        logits, _, state = ask_at(clocked, state, state.z, sigmas[-1] ** -2)
        yield replace(read_out(state, logits, self.draw, generator), step=self.num_steps)

    def _grid(self, clocked: Clocked) -> list[float]:
        first, last = (snr**-0.5 for snr in clocked.snr_range)
        return [first] if self.num_steps == 1 else karras(self.num_steps - 1, last, first, self.rho)


def _noise(clocked: Clocked, start: State, sigma: float, generator: Randomness) -> State:
    """Draw the first state: of unit variance in VP's own coordinate, known tokens as observed."""
    x = _known(clocked, start)
    eps = normal(x.shape, generator=generator, dtype=x.dtype, device=x.device)
    free = (1 + sigma**2) ** 0.5 * eps
    y = torch.where(start.fixed.unsqueeze(-1), x + sigma * eps, free)
    return replace(start, z=natural(y, level_of(sigma, start)))


def _slope(clocked: Clocked, state: State, y: Noisy, sigma: float) -> tuple[Noisy, State]:
    z = natural(y, level_of(sigma, state))
    _, x_hat, state = ask_at(clocked, state, z, sigma**-2)
    x_hat = torch.where(state.fixed.unsqueeze(-1), _known(clocked, state), x_hat)
    return (y - x_hat) / sigma, state


def _known(clocked: Clocked, state: State) -> Noisy:
    return clocked.codebook.detach().double()[state.tokens.clamp(min=0)]
