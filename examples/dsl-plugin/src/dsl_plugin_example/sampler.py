"""A sampler: tokens are drawn from left to right, several in each step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from dsl.core import Denoiser, Randomness, uniform
from dsl.samplers import Draw, State, ask, require_steps


@dataclass(frozen=True)
class LeftToRight:
    """Draw the leftmost masked tokens, an equal share of them in every step.

    With one token per step the samples have exactly the distribution of the model. Tokens of the
    same step are drawn independently of each other.
    """

    num_steps: int
    """The number after the @, as in left-to-right@16."""
    draw: Draw = Draw()
    """Temperature, top-k and top-p, as in left-to-right@16:top_p=0.9."""
    asks: ClassVar[type] = Denoiser

    def __post_init__(self) -> None:
        require_steps(self.num_steps)

    def steps(
        self, denoiser: Denoiser, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Yield the state after every step."""
        state = start
        for step in range(start.step, self.num_steps):
            hidden = state.masked
            # Numbers for the whole batch: the text of a sequence does not depend on its neighbours.
            u = uniform(
                hidden.shape, generator=generator, dtype=torch.float64, device=hidden.device
            )
            due = (hidden.sum(dim=1, keepdim=True) / (self.num_steps - step)).ceil()
            chosen = hidden & (hidden.cumsum(dim=1) <= due)
            logits, state = ask(denoiser, state, state.endpoints, chosen)
            state = state.commit(chosen, *self.draw(logits, u[chosen]))
            state = replace(state, step=step + 1)
            yield state
