"""Sequences to be drawn: a model, a path, what is known of them, and a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from dsl.arguments import finite_number, whole_number
from dsl.automaton import IMPOSSIBLE, Automaton, matching
from dsl.evidence import Evidence, Hints, given
from dsl.guidance import GUIDED, guided
from dsl.loading import Model
from dsl.sample_file import Sample
from dsl.sampling.sampler import Sampler
from dsl.sampling.state import State
from dsl.sampling.strided import Strided
from dsl.serving import require_endpoints, require_passed_on, require_served
from dsl.streams import Streams
from dsl.told import TOLD
from dsl.types import MASK
from dsl.unseen import FOLLOWED, followed


@dataclass(frozen=True, eq=False)
class Start:
    """Where a job starts: pinned tokens and evidence, one row for all sequences or one for each."""

    tokens: torch.Tensor
    evidence: Evidence | None = None

    @classmethod
    def blank(cls, length: int) -> Start:
        """Know nothing."""
        return cls(torch.full((1, length), MASK))

    @classmethod
    def known(cls, model: Model, rows: Sequence[Hints]) -> Start:
        """Know something of every position: hard tokens are pinned, the rest is evidence."""
        found = Evidence.of(rows, model.denoiser)
        return cls(found.pinned, None if found.e is None else found.soft)

    def rows(self, indices: Sequence[int], device: torch.device) -> tuple[State, Evidence | None]:
        """Return the start of the sequences with these indices."""
        pick = [0] * len(indices) if len(self.tokens) == 1 else list(indices)
        state = State.start(self.tokens[pick].to(device))
        return state, None if self.evidence is None else self.evidence.take(pick).to(device)


@dataclass(frozen=True, eq=False)
class Job:
    """Sequences to be drawn: a model, a path, a start and a seed.

    Sequence i is the same text whatever batch or process draws it.
    """

    model: Model
    sampler: Sampler
    start: Start
    seed: int = 0
    indices: tuple[int, ...] | None = None
    """The sequences that the rows of the start belong to; 0, 1, … if not given."""
    unseen: int = 0
    """Tokens that follow every sequence, of which nothing is known and which are not drawn."""
    form: Automaton | None = None
    """Which texts are allowed, if not all."""
    guidance: float = 1.0
    """How often what is known of a text counts."""

    def __post_init__(self) -> None:
        whole_number("seed", self.seed, least=0)
        length = self.start.tokens.shape[1] + self.unseen
        if isinstance(self.sampler, Strided):
            if self.form is not None:
                raise ValueError("give match or stride, not both: a form is one of a whole text")
            length = min(length, self.sampler.window)
        self.model.require_length(length)
        require_served(self.model, self.sampler)
        if self.guidance != 1:
            self._require_guided()
        self._require_passed_on()

    def _require_passed_on(self) -> None:
        """Refuse a path whose questions do not get through what is put around the network."""
        if self.form is not None:
            require_endpoints(self.model, "writes texts of an allowed form")
            require_passed_on(self.sampler, TOLD, "match is for paths over masks and tokens")
        if self.guidance != 1:
            require_passed_on(self.sampler, GUIDED, "guidance is for paths of masks and states")
        if self.unseen:
            require_passed_on(
                self.sampler,
                FOLLOWED,
                "unknown text can follow only what is drawn along masks and states (say that the "
                "document ends here, or stays open: --ending here, --ending open)",
            )

    def _require_guided(self) -> None:
        finite_number("guidance", self.guidance, least=0.0)
        require_endpoints(self.model, "can do without what it is given, as guidance has to")
        if self.start.evidence is None and (self.start.tokens == MASK).all():
            raise ValueError(
                "guidance needs something to go by, such as a prompt; nothing is given"
            )

    def batch(self, indices: Sequence[int]) -> Batch:
        """Set out with the sequences of these indices."""
        device = self.model.device
        places = indices if self.indices is None else [self.indices.index(i) for i in indices]
        state, hints = self.start.rows(places, device)
        network = followed(self.model.denoiser, self.unseen)
        denoiser = network if hints is None else given(network, hints)
        if self.guidance != 1:
            known = Evidence(state.tokens) if hints is None else replace(hints, pinned=state.tokens)
            denoiser = guided(network, known, self.guidance)
        if self.form is not None:
            denoiser = matching(denoiser, self.form, state.tokens)
        streams = Streams.derive(self.seed, indices, device=device)
        states = self.sampler.steps(denoiser, state, generator=streams)
        return Batch(indices, denoiser, state, states)

    def finish(self, batch: Batch, state: State, seconds: float) -> list[Sample]:
        """Read the sequences of a batch from its last state."""
        each = seconds / len(batch.indices)
        if (state.tokens == MASK).any():
            raise ValueError("the sampler leaves tokens masked; it must end with a Commit")
        if self.form is not None and not self.form.accepts(state.tokens).all():
            raise ValueError(IMPOSSIBLE)
        rows = zip(
            batch.indices,
            state.tokens.tolist(),
            _given(batch.start, self.model.end),
            state.nfe.tolist(),
            strict=True,
        )
        return [
            Sample(i, self.model.decode(self.model.document(row, known=known)), row, nfe, each)
            for i, row, known, nfe in rows
        ]


def _given(start: State, end: int | None) -> list[int]:
    """Count the tokens of each sequence up to the last that was given and is no end."""
    pinned = start.tokens != MASK if end is None else (start.tokens != MASK) & (start.tokens != end)
    places = torch.arange(1, pinned.shape[1] + 1, device=pinned.device)
    found: list[int] = (pinned * places).amax(dim=1).tolist()
    return found


@dataclass(frozen=True, eq=False)
class Batch:
    """A batch on its way."""

    indices: Sequence[int]
    denoiser: Any
    start: State
    states: Iterator[State]


Follow = Callable[..., Iterator[State]]
"""Something that passes states through and learns from them, such as `Trace.follow`."""


def run(
    batch: Batch, follow: Follow | None = None, on_step: Callable[[int], None] | None = None
) -> State:
    """Walk a batch to its end; `follow` and `on_step` may look on."""
    states, state = batch.states, batch.start
    if follow:
        states = follow(states, batch.start, indices=batch.indices)
    for reached in states:
        state = reached
        if on_step:
            on_step(state.step)
    return state


def batches(indices: Sequence[int], batch_size: int) -> Iterator[Sequence[int]]:
    """Cut a job into batches."""
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    for begin in range(0, len(indices), batch_size):
        yield indices[begin : begin + batch_size]


def strided(sampler: Sampler, model: Model, length: int, stride: int | None) -> Sampler:
    """Walk texts longer than the model in strides, if that is wanted; else refuse them."""
    if isinstance(sampler, Strided):
        if stride is not None:
            raise ValueError(
                f"the sampler has a stride of its own, {sampler.stride}: give no other"
            )
        return sampler
    if stride is None:
        try:
            model.require_length(length)
        except ValueError as error:
            hint = "; a stride (--stride N) writes longer ones" if length > model.length else ""
            raise ValueError(f"{error}{hint}") from None
        return sampler
    return Strided(sampler, model.length, whole_number("stride", stride, least=1))
