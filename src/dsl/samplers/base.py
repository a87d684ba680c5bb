"""The sampler protocol, an iterator of states, and chains of samplers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from dsl._util.validate import finite_number
from dsl.conditioning.wrapper import calls
from dsl.core.denoiser import Denoiser, Endpoints
from dsl.core.streams import Randomness
from dsl.core.types import Mask, Noisy
from dsl.samplers.draw import Draw
from dsl.samplers.state import State


@runtime_checkable
class Sampler(Protocol):
    """A path through SNR space.

    `steps` yields the state after every step, so that the caller can stop, record or display
    it. A yielded state can be passed back as `start` to resume.
    """

    @property
    def asks(self) -> type:
        """The protocol that a network must implement."""
        ...

    def steps(
        self, denoiser: Any, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Walk from `start`, yielding every state on the way.

        Args:
            denoiser: A network that implements the protocol `asks`.
            start: Pinned tokens and masks, or a state that was yielded before.
            generator: One generator, or a stream for each sequence.
        """
        ...


@dataclass(frozen=True)
class Chain:
    """Samplers one after the other, each starting where the last one ended."""

    samplers: tuple[Sampler, ...]

    @property
    def asks(self) -> type:
        """The most specific protocol that a stage needs."""
        return max((sampler.asks for sampler in self.samplers), key=lambda kind: len(kind.__mro__))

    def steps(
        self, denoiser: Any, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Run all stages; `stage` and `step` of a state give its position."""
        state = start
        for stage, sampler in enumerate(self.samplers):
            if stage < start.stage:
                continue
            if stage > start.stage:
                state = replace(state, step=0, memory=None)
            for reached in sampler.steps(denoiser, state, generator=generator):
                state = replace(reached, stage=stage)
                yield state


def redrawn(
    sampler: Sampler, *, temperature: float | None = None, top_p: float | None = None
) -> Sampler:
    """Return the sampler with another temperature or top-p wherever it draws tokens."""
    given = {"temperature": temperature, "top_p": top_p}
    changes = {n: finite_number(n, value) for n, value in given.items() if value is not None}
    if not changes:
        return sampler
    changed: Sampler | None = _redrawn(sampler, changes)
    if changed is None:
        raise ValueError(
            f"{' and '.join(changes)} cannot be set: the sampler {type(sampler).__name__} has no "
            "'draw' to change"
        )
    return changed


def _redrawn(sampler: Any, changes: Mapping[str, Any]) -> Any:
    """Change the draws of a sampler; None if it has none."""
    if isinstance(sampler, Chain):
        stages = [_redrawn(stage, changes) for stage in sampler.samplers]
        if all(stage is None for stage in stages):
            return None
        pairs = zip(sampler.samplers, stages, strict=True)
        return Chain(tuple(old if new is None else new for old, new in pairs))
    if isinstance(inner := getattr(sampler, "sampler", None), Sampler):  # a path around another
        changed = _redrawn(inner, changes)
        return None if changed is None else replace(sampler, sampler=changed)
    draw = getattr(sampler, "draw", None)
    if not is_dataclass(sampler) or not isinstance(draw, Draw):
        return None
    return replace(sampler, draw=replace(draw, **changes))  # type: ignore[type-var]


def last(sampler: Sampler, denoiser: Any, start: State, *, generator: Randomness = None) -> State:
    """Walk to the end and return the last state."""
    walked = deque(sampler.steps(denoiser, start, generator=generator), maxlen=1)
    return walked[0] if walked else start


def ask(
    denoiser: Denoiser, state: State, z: Noisy | Endpoints, at: Mask
) -> tuple[Float[Tensor, "n v"], State]:
    """Return the logits of the chosen rows, and count the network calls of each sequence."""
    asked = at.any(dim=1)
    state = replace(state, nfe=state.nfe + calls(denoiser) * asked.long())
    if not asked.any():
        return torch.zeros(0, denoiser.vocab_size, device=denoiser.device), state
    with torch.no_grad():
        return denoiser(z, at=at), state
