"""Generate and infill text: a model, a path, and what is already known of the text."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from dsl import known_text, presets
from dsl.arguments import finite_number, sequence, whole_number
from dsl.arguments import text as require_text
from dsl.automaton import Automaton, matching
from dsl.evidence import Evidence, Hints, given
from dsl.guidance import guided
from dsl.loading import DEFAULT_MODEL, Model, loaded
from dsl.sample_file import Sample
from dsl.sampling.sampler import Sampler, redrawn
from dsl.sampling.state import State
from dsl.sampling.strided import Strided
from dsl.serving import allowed, require_served
from dsl.streams import Streams
from dsl.strict import shown
from dsl.types import MASK
from dsl.unseen import followed

DEFAULT_SAMPLER = "mdlm@64"
INFILL_SAMPLER = "roar"
"""One token at a time: gaps are short, and then the exact path costs little."""


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

    def _require_guided(self) -> None:
        finite_number("guidance", self.guidance, least=0.0)
        if "endpoints" not in self.model.answers:
            raise ValueError(
                f"{self.model.name} is of family {self.model.family.name}: only a model that can "
                "be asked about masked tokens anywhere can do without what it is given, as "
                "guidance has to"
            )
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


def generate(
    model: str | Path | Model = DEFAULT_MODEL,
    n: int = 1,
    *,
    length: int | None = None,
    sampler: str | Sampler = DEFAULT_SAMPLER,
    prompt: str = "",
    temperature: float | None = None,
    top_p: float | None = None,
    hints: Hints | Sequence[Hints] | None = None,
    match: str | None = None,
    guidance: float = 1.0,
    stride: int | None = None,
    seed: int = 0,
    batch_size: int = 32,
) -> list[Sample]:
    """Draw n sequences, given nothing, a beginning, or hints about their positions.

    >>> for sample in dsl.generate("oracle:cyclic-7", n=3, prompt="BC", sampler="roar"):
    ...     print(sample.text)

    A model of documents chooses the length of its text: `text` goes up to the end, `tokens` holds
    the whole sequence.

    Args:
        model: A model, or its name.
        n: How many sequences.
        length: Tokens in a sequence; the model's own length if not given.
        sampler: The path: its name, such as "remdm-conf@64:temperature=0.8", or a sampler.
        prompt: Text that every sequence begins with.
        temperature: Overrides the sampler's own; 0 takes the most likely tokens.
        top_p: Overrides the sampler's own: the mass of the tokens that are drawn from.
        hints: What is known of each position: one list for all sequences, or a list of such
            lists with one for each.
        match: A regular expression that every whole text matches. The path draws one token at a
            time: "roar", "causal" or "confident@T" with T the length.
        guidance: How often what is known counts: more than once makes texts fit it better and
            differ less. Other than 1 it takes two calls of the network for one.
        stride: Write texts longer than the model: in windows of its length, of which each moves on
            by so many tokens and sees the end of what is written.
        seed: With a sequence's index it determines the text.
        batch_size: Sequences drawn side by side.
    """
    path = _path(sampler, temperature, top_p)
    rows = _rows(hints)
    if require_text("prompt", prompt) and rows is not None:
        raise ValueError("give a prompt or hints, not both: hints can hold Known tokens")
    if rows is not None:
        if len(rows) not in (1, n):
            raise ValueError(f"hints must describe one sequence or all {n}, got {len(rows)}")
        if length is not None and length != len(rows[0]):
            raise ValueError(f"length {length} differs from the {len(rows[0])} hints")
        length = len(rows[0])
    model = loaded(model, length=length if stride is None else None)
    length = model.length if length is None else length
    path = strided(path, model, length, stride)
    if prompt:
        rows = [known_text.prompted(model, prompt, length)]
    start = Start.known(model, rows) if rows else Start.blank(length)
    form = None if match is None else allowed(model, match)
    return drawn(Job(model, path, start, seed, form=form, guidance=guidance), n, batch_size)


def strided(sampler: Sampler, model: Model, length: int, stride: int | None) -> Sampler:
    """Walk texts longer than the model in strides, if that is wanted; else refuse them."""
    if stride is None:
        try:
            model.require_length(length)
        except ValueError as error:
            hint = "; stride=N writes longer texts" if length > model.length else ""
            raise ValueError(f"{error}{hint}") from None
        return sampler
    return Strided(sampler, model.length, whole_number("stride", stride, least=1))


def drawn(job: Job, n: int, batch_size: int) -> list[Sample]:
    """Draw the first n sequences of a job."""
    whole_number("n", n, least=1)
    samples: list[Sample] = []
    for indices in batches(range(n), whole_number("batch_size", batch_size, least=1)):
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
    temperature: float | None = None,
    top_p: float | None = None,
    ending: known_text.Ending = "unknown",
    guidance: float = 1.0,
    seed: int = 0,
    batch_size: int = 32,
) -> list[Sample]:
    """Fill the gaps of a text: `[12]` is a gap of twelve tokens; what surrounds it stays.

    >>> dsl.infill("AB[3]FG", "oracle:cyclic-7")[0].text
    'ABCDEFG'

    To a model of documents the text begins one, and what follows it is unknown and not written.

    Args:
        text: The text with its gaps.
        model: A model, or its name.
        n: How many versions.
        sampler: The path: its name, or a sampler.
        temperature: Overrides the sampler's own; 0 takes the most likely tokens.
        top_p: Overrides the sampler's own: the mass of the tokens that are drawn from.
        ending: What follows the text, to a model of documents: "unknown"; "here", if the text is a
            whole one; or "open", to let the model write on.
        guidance: How often what surrounds the gaps counts; see `generate`.
        seed: With a version's index it determines what is written.
        batch_size: Versions drawn side by side.
    """
    require_text("text", text)
    if not known_text.GAP.search(text) and not known_text.BRACKETED.search(text):
        raise ValueError(f"the text has no gap: write one as [12], got {shown(text)}")
    model = loaded(model, length=known_text.count_characters(text))
    row = known_text.ended(model, known_text.parse_gaps(model, text), ending)
    path = _path(sampler, temperature, top_p)
    job = Job(
        model,
        path,
        Start.known(model, [row]),
        seed,
        unseen=known_text.unseen(model, len(row), ending),
        guidance=guidance,
    )
    return drawn(job, n, batch_size)


def _path(
    sampler: str | Sampler, temperature: float | None = None, top_p: float | None = None
) -> Sampler:
    """Return the sampler of a name, or a sampler itself, with what is said of its draw."""
    if not isinstance(sampler, str | Sampler) or isinstance(sampler, type):
        raise ValueError(f"sampler must be a name or a sampler, got {sampler!r}")
    path = presets.sampler(sampler) if isinstance(sampler, str) else sampler
    return redrawn(path, temperature=temperature, top_p=top_p)


def _rows(hints: Hints | Sequence[Hints] | None) -> Sequence[Hints] | None:
    if hints is None:
        return None
    if not sequence("hints", hints, "hints, one for each position"):
        raise ValueError("hints must describe at least one position, got none")
    # A row of hints holds observations, or tuples of them; a batch holds rows, which are lists.
    batch = all(isinstance(row, list) for row in hints)
    return hints if batch else [hints]  # type: ignore[list-item, return-value]
