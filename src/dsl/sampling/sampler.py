"""What a sampler is: an iterator of states; and samplers one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.denoiser import Denoiser, Endpoints
from dsl.sampling.state import State
from dsl.streams import Randomness
from dsl.types import Mask, Noisy


@runtime_checkable
class Sampler(Protocol):
    """A path through SNR space.

    `steps` yields the state after every step, so that whoever asks can draw, stop, record or show
    it. A yielded state can be passed back as `start` and the walk goes on from there.
    """

    def steps(
        self, denoiser: Denoiser, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Walk from `start`, yielding every state on the way."""
        ...


@dataclass(frozen=True)
class Chain:
    """Samplers one after the other, each starting where the last one ended."""

    samplers: tuple[Sampler, ...]

    def steps(
        self, denoiser: Denoiser, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Walk through all stages; `stage` and `step` say where one is."""
        state = start
        for stage, sampler in enumerate(self.samplers):
            if stage < start.stage:
                continue
            if stage > start.stage:
                state = replace(state, step=0, plan=None, share=None)
            for reached in sampler.steps(denoiser, state, generator=generator):
                state = replace(reached, stage=stage)
                yield state


def last(
    sampler: Sampler, denoiser: Denoiser, start: State, *, generator: Randomness = None
) -> State:
    """Walk to the end and return the last state."""
    walked = deque(sampler.steps(denoiser, start, generator=generator), maxlen=1)
    return walked[0] if walked else start


def ask(
    denoiser: Denoiser, state: State, z: Noisy | Endpoints, at: Mask
) -> tuple[Float[Tensor, "n v"], State]:
    """Ask for the logits of the chosen rows, and count the sequences that had to be computed."""
    asked = at.any(dim=1)
    state = replace(state, nfe=state.nfe + asked.long())
    if not asked.any():
        return denoiser.codebook.new_zeros(0, denoiser.codebook.shape[0]), state
    with torch.no_grad():
        return denoiser(z, at=at), state
