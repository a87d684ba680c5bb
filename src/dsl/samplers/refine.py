"""From a continuous state to tokens, and the refinement of tokens by their uncertainty (C.6)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.core.denoiser import Continuous, Denoiser
from dsl.core.streams import Randomness
from dsl.core.types import Mask
from dsl.samplers.base import ask
from dsl.samplers.draw import Draw
from dsl.samplers.masked import require_steps
from dsl.samplers.state import State


@dataclass(frozen=True)
class Commit:
    """Read a continuous state as tokens: one forward, one draw for every free position."""

    draw: Draw = Draw()
    asks: ClassVar[type] = Continuous

    def steps(
        self, denoiser: Denoiser, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Yield the committed state, its confidence the largest probability of each position."""
        if start.step > 0:
            return
        z = start.endpoints if start.z is None else start.z
        logits, state = ask(denoiser, start, z, start.free)
        state = resample(replace(state, z=None, snr=None), logits, self.draw, start.free, generator)
        yield replace(state, step=1)


@dataclass(frozen=True)
class Refine:
    """Remask the most uncertain tokens and redraw them, fewer in every step.

    The share starts at the mean uncertainty of the sequence, between r_min and r_max, and falls
    to r_end by a cosine. Uncertainty is 1 - max_v p(v), from the last forward, without temperature.
    """

    num_steps: int
    draw: Draw = Draw()
    r_min: float = 0.2
    r_max: float = 0.8
    r_end: float = 0.0
    asks: ClassVar[type] = Denoiser

    def __post_init__(self) -> None:
        require_steps(self.num_steps)
        if not 0 <= self.r_end <= self.r_min <= self.r_max <= 1:
            raise ValueError(
                "refinement needs 0 <= r_end <= r_min <= r_max <= 1, "
                f"got r_end={self.r_end}, r_min={self.r_min}, r_max={self.r_max}"
            )

    def steps(
        self, denoiser: Denoiser, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Refine; a position that is still masked counts as wholly uncertain."""
        state = start
        free = state.free.sum(dim=1).clamp(min=1)
        if start.memory is None:
            doubt = torch.where(state.free, 1 - state.confidence, 0.0).sum(dim=1) / free
            state = replace(state, memory=doubt.clamp(self.r_min, self.r_max))
        r_0: Float[Tensor, "b"] = state.memory  # the share to remask in the first step
        for k in range(start.step, self.num_steps):
            decay = (1 + math.cos(math.pi * k / self.num_steps)) / 2
            count = ((self.r_end + (r_0 - self.r_end) * decay) * free).ceil()
            hidden = most_uncertain(state, count)
            state = state.remask(hidden)
            logits, state = ask(denoiser, state, state.endpoints, state.free)
            state = resample(state, logits, self.draw, hidden, generator)
            state = replace(state, step=k + 1)
            yield state


def most_uncertain(state: State, count: Float[Tensor, "b"]) -> Mask:
    """Choose the free positions with the lowest confidence, and all that are masked."""
    sure = state.confidence.masked_fill(state.masked, -1.0).masked_fill(state.fixed, torch.inf)
    rank = sure.argsort(dim=1, stable=True).argsort(dim=1)
    return state.free & ((rank < count.unsqueeze(1)) | state.masked)


def resample(
    state: State, logits: Float[Tensor, "n v"], draw: Draw, at: Mask, generator: Randomness
) -> State:
    """Draw tokens at the chosen positions from the logits of all free ones."""
    u = state.uniform(generator)
    sure = logits.double().softmax(dim=-1).amax(dim=-1)
    chosen = at[state.free]
    tokens, _ = draw(logits[chosen], u[at])
    state = state.commit(at, tokens, sure[chosen])
    return replace(state, confidence=state.confidence.masked_scatter(state.free, sure))
