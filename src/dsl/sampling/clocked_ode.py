"""The probability-flow ODE of a network with a clock: a walk without noise on the way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch

from dsl.channel import natural, physical, snr_from_sigma
from dsl.denoiser import Clocked, Question, require_clocked
from dsl.sampling.ancestral import require_steps
from dsl.sampling.categorical import Draw
from dsl.sampling.clocked import ask_at, read_out
from dsl.sampling.edm import follow, karras, level_of
from dsl.sampling.sampler import CLOCK
from dsl.sampling.state import State
from dsl.streams import Randomness, normal
from dsl.types import Noisy


@dataclass(frozen=True)
class ClockedOde:
    """Follow dy/dσ = (y - x̂)/σ from the first SNR to the last, then draw the tokens.

    The coordinate is EDM's, y = z/γ = x + σε with σ = 1/√γ, and so is the grid. Known tokens are
    x̂ = x: their y = x + σε keeps its ε, along a straight line. A network that listens to itself
    is told x̂ of the call before.
    """

    num_steps: int
    rho: float = 7.0
    heun: bool = True
    """Correct every step to second order, at the price of a second call."""
    draw: Draw = Draw()
    needs: ClassVar[frozenset[Question]] = CLOCK

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
