"""The discrete-flow-matching corrector: reveal and remask more in the middle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from dsl.core.denoiser import Denoiser
from dsl.core.streams import Randomness
from dsl.samplers.draw import Draw
from dsl.samplers.masked import END, move, remove_noise, require_steps
from dsl.samplers.state import State


@dataclass(frozen=True)
class Corrector:
    """MDLM with the discrete-flow-matching corrector.

    It walks forward at rate a_t and back at rate b_t = a_t - 1, a_t = 1 + 10 (t(1 - t))^¼.

    The step is 1/T, or less where the rates would otherwise exceed a probability of one. Near the
    ends that is often: the grid has 51 steps at T = 4, 88 at T = 64 and 270 at T = 256.
    """

    num_steps: int
    draw: Draw = Draw()
    official: bool = False
    """Stop as soon as t is at most one step, as ReMDM's code does, and leave tokens that are
    still masked (up to 1/T) to noise removal. Otherwise continue to t = 1e-5."""
    asks: ClassVar[type] = Denoiser

    def __post_init__(self) -> None:
        require_steps(self.num_steps)

    def steps(
        self, denoiser: Denoiser, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Walk the adaptive grid, then reveal the remaining tokens greedily."""
        state, grid = start, self.grid()
        for reveal, remask in grid[start.step :]:
            like = torch.ones_like(state.confidence)
            state = move(
                denoiser, state, reveal * like, remask * like, self.draw, generator=generator
            )
            yield state
        if start.step <= len(grid):
            yield remove_noise(denoiser, state)

    def grid(self) -> list[tuple[float, float]]:
        """Return the reveal and the remask probability of every step."""
        t, pairs = 1.0, []
        end = (1 - END) / self.num_steps if self.official else END
        while t > end:
            a = 10 * (t * (1 - t)) ** 0.25 + 1
            b = a - 1
            dt = 1 / self.num_steps
            if t < 1:
                dt = min(dt, 1 / (a / t + b / (1 - t)), t)
            # coefficients of the corrector: a dt / t to reveal, b dt / (1 - t) to remask
            pairs.append((a * dt / t, b * dt / (1 - t) if t < 1 else 0.0))
            t -= dt
        return pairs
