"""Generate and infill text: a model, a path, and what is already known of the text."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from dsl.denoiser import Denoiser
from dsl.evidence import Evidence, Known, Observation, Unknown, evidence, given, likelihood
from dsl.loading import DEFAULT_MODEL, Model, load
from dsl.presets import sampler as by_name
from dsl.samples import Sample
from dsl.sampling.sampler import Sampler
from dsl.sampling.state import State
from dsl.streams import Streams
from dsl.types import MASK

DEFAULT_SAMPLER = "mdlm@64"
INFILL_SAMPLER = "roar"
"""One token at a time: gaps are short, and then the exact path costs little."""

Hints = Sequence[Observation | Sequence[Observation]]
"""What is known about each position of a sequence."""


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
        codebook = model.denoiser.codebook.detach()
        log_likelihood = likelihood(rows, codebook)
        possible = (log_likelihood > -torch.inf).sum(dim=-1)
        hard = [[_hard(hints) for hints in row] for row in rows]
        pinned = (possible == 1) & torch.tensor(hard, device=possible.device)
        tokens = torch.where(pinned, log_likelihood.argmax(dim=-1), MASK)
        soft = log_likelihood.masked_fill(pinned.unsqueeze(-1), 0.0)
        if (soft == 0).all():
            return cls(tokens)
        return cls(tokens, evidence(soft, codebook, model.denoiser.snr_max))

    def rows(self, indices: Sequence[int], device: torch.device) -> tuple[State, Evidence | None]:
        """Return the start of the sequences with these indices."""
        pick = [0] * len(indices) if len(self.tokens) == 1 else list(indices)
        state = State.start(self.tokens[pick].to(device))
        if self.evidence is None:
            return state, None
        residual = self.evidence.residual
        return state, Evidence(
            self.evidence.e[pick].to(device),
            None if residual is None else residual[pick].to(device),
        )


def _hard(hints: Observation | Sequence[Observation]) -> bool:
    return isinstance(hints, Known) or (
        isinstance(hints, Sequence) and any(isinstance(hint, Known) for hint in hints)
    )


@dataclass(frozen=True, eq=False)
class Job:
    """Sequences to be drawn: a model, a path, a start and a seed.

    Sequence i is the same text whatever batch or process draws it.
    """

    model: Model
    sampler: Sampler
    start: Start
    seed: int = 0

    def __post_init__(self) -> None:
        self.model.require_length(self.start.tokens.shape[1])

    def batch(self, indices: Sequence[int]) -> Batch:
        """Set out with the sequences of these indices."""
        device = self.model.denoiser.codebook.device
        state, hints = self.start.rows(indices, device)
        denoiser = self.model.denoiser if hints is None else given(self.model.denoiser, hints)
        streams = Streams.derive(self.seed, indices, device=device)
        states = self.sampler.steps(denoiser, state, generator=streams)
        return Batch(indices, denoiser, state, states)

    def finish(self, batch: Batch, state: State, seconds: float) -> list[Sample]:
        """Read the sequences of a batch from its last state."""
        each = seconds / len(batch.indices)
        rows = zip(batch.indices, state.tokens.tolist(), state.nfe.tolist(), strict=True)
        return [Sample(i, self.model.decode(row), row, nfe, each) for i, row, nfe in rows]


@dataclass(frozen=True, eq=False)
class Batch:
    """A batch on its way."""

    indices: Sequence[int]
    denoiser: Denoiser
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


def generate(
    model: str | Path | Model = DEFAULT_MODEL,
    n: int = 1,
    *,
    length: int | None = None,
    sampler: str | Sampler = DEFAULT_SAMPLER,
    hints: Hints | Sequence[Hints] | None = None,
    seed: int = 0,
    batch_size: int = 32,
) -> list[Sample]:
    """Draw n sequences, given nothing or given hints about their positions.

    >>> for sample in dsl.generate("oracle:cyclic-7", n=3, sampler="roar"):
    ...     print(sample.text)
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    rows = _rows(hints)
    if rows is not None:
        if len(rows) not in (1, n):
            raise ValueError(f"hints must describe one sequence or all {n}, got {len(rows)}")
        if length is not None and length != len(rows[0]):
            raise ValueError(f"length {length} differs from the {len(rows[0])} hints")
        length = len(rows[0])
    model = model if isinstance(model, Model) else load(model, length=length)
    length = model.length if length is None else length
    model.require_length(length)
    path = by_name(sampler) if isinstance(sampler, str) else sampler
    start = Start.known(model, rows) if rows else Start.blank(length)
    job = Job(model, path, start, seed)
    samples: list[Sample] = []
    for indices in batches(range(n), batch_size):
        began, batch = time.monotonic(), job.batch(indices)
        state = run(batch)
        samples += job.finish(batch, state, time.monotonic() - began)
    return samples


def infill(
    text: str,
    model: str | Path | Model = DEFAULT_MODEL,
    n: int = 1,
    *,
    sampler: str | Sampler = INFILL_SAMPLER,
    seed: int = 0,
    batch_size: int = 32,
) -> list[Sample]:
    """Fill the gaps of a text: `[12]` is a gap of twelve tokens; what surrounds it stays.

    >>> dsl.infill("AB[3]FG", "oracle:cyclic-7")[0].text
    'ABCDEFG'
    """
    if not isinstance(model, Model):
        model = load(model, length=count_characters(text))
    hints = parse_gaps(model, text)
    return generate(model, n, sampler=sampler, hints=hints, seed=seed, batch_size=batch_size)


GAP = re.compile(r"\[(\d+)\]")
BRACKETED = re.compile(r"\[[^\]]*\]")


def parse_gaps(model: Model, text: str) -> list[Observation]:
    """Read a text with gaps as what is known of each position."""
    hints: list[Observation] = []
    for part in re.split(r"(\[\d+\])", text):
        if gap := GAP.fullmatch(part):
            if int(gap[1]) == 0:
                raise ValueError("a gap has at least 1 token, got [0]")
            hints += [Unknown()] * int(gap[1])
        elif part:
            if (other := BRACKETED.search(part)) and not model.can_say(other[0]):
                raise ValueError(f"a gap is written as its length, such as [12]; got {other[0]}")
            hints += [Known(token) for token in model.encode(part)]
    if not any(isinstance(hint, Unknown) for hint in hints):
        raise ValueError(f"the text has no gap: write one as [12], got {text!r}")
    return hints


def count_characters(text: str) -> int:
    """Count characters and gaps: the length of an oracle's text, whose tokens are characters."""
    return len(GAP.sub("", text)) + sum(int(size) for size in GAP.findall(text))


def _rows(hints: Hints | Sequence[Hints] | None) -> Sequence[Hints] | None:
    if hints is None:
        return None
    if not hints:
        raise ValueError("hints must describe at least one position, got none")
    # A row of hints holds observations, or tuples of them; a batch holds rows, which are lists.
    batch = all(isinstance(row, list) for row in hints)
    return hints if batch else [hints]  # type: ignore[list-item, return-value]
