"""Texts longer than the network's window: overlapping windows from left to right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dsl.conditioning.wrapper import stretch
from dsl.core.streams import Randomness
from dsl.samplers.base import Sampler
from dsl.samplers.state import State


@dataclass(frozen=True)
class Strided:
    """Sample the first window, then move by a stride and sample the new tokens, to the text's end.

    A window contains `window - stride` earlier tokens and the pinned ones. So a text is drawn from
    left to right in strides, each along any path: semi-autoregression.
    """

    sampler: Sampler
    """The path within a window."""
    window: int
    """The number of tokens in a window."""
    stride: int
    """How far the window moves: the tokens that each one but the first and the last adds."""

    def __post_init__(self) -> None:
        if not 1 <= self.stride <= self.window:
            raise ValueError(
                f"a stride must lie in 1 … {self.window}, the tokens of a window, got {self.stride}"
            )

    @property
    def asks(self) -> type:
        """The protocol that the inner sampler needs."""
        return self.sampler.asks

    def begins(self, length: int) -> list[int]:
        """Return where the windows begin; the last one ends where the text does."""
        last = max(0, length - self.window)
        return [*range(0, last, self.stride), last]

    def steps(
        self, denoiser: Any, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Walk all windows; `stage` says which one, and `memory` holds the state within it."""
        state = start
        for number, begin in enumerate(self.begins(start.tokens.shape[1])):
            if number < start.stage:
                continue
            here = slice(begin, begin + self.window)
            view = stretch(denoiser, begin, begin + self.window)
            inner = State.start(state.tokens[:, here]) if state.memory is None else state.memory
            for reached in self.sampler.steps(view, inner, generator=generator):
                state = replace(
                    state,
                    tokens=_put(state.tokens, here, reached.tokens),
                    confidence=_put(state.confidence, here, reached.confidence),
                    nfe=state.nfe + reached.nfe - inner.nfe,
                    memory=reached,
                    step=state.step + 1,
                    stage=number,
                )
                inner = reached
                yield state
            state = replace(state, memory=None)


def _put(whole: Tensor, here: slice, part: Tensor) -> Tensor:
    return torch.cat([whole[:, : here.start], part, whole[:, here.stop :]], dim=1)
