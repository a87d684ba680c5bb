"""Generate and infill text: a model, a path, and what is already known of the text."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from dsl import known_text, presets
from dsl.arguments import sequence, whole_number
from dsl.arguments import text as require_text
from dsl.evidence import Hints
from dsl.jobs import Job, Start, batches, run, strided
from dsl.loading import DEFAULT_MODEL, Model, loaded
from dsl.sample_file import Sample
from dsl.sampling.sampler import Sampler, redrawn
from dsl.serving import allowed
from dsl.strict import shown

DEFAULT_SAMPLER = "mdlm@64"
INFILL_SAMPLER = "roar"
"""One token at a time: gaps are short, and then the exact path costs little."""


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
    length = length if rows is None else _hinted(rows, n, length)
    model = loaded(model, length=length if stride is None else None)
    length = model.length if length is None else length
    path = strided(path, model, length, stride)
    if prompt:
        rows = [known_text.prompted(model, prompt, length)]
    start = Start.known(model, rows) if rows else Start.blank(length)
    form = None if match is None else allowed(model, match)
    return drawn(Job(model, path, start, seed, form=form, guidance=guidance), n, batch_size)


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


def _hinted(rows: Sequence[Hints], n: int, length: int | None) -> int:
    """Return the length of hinted sequences, which must be theirs and as many as are wanted."""
    if len(rows) not in (1, n):
        raise ValueError(f"hints must describe one sequence or all {n}, got {len(rows)}")
    if length is not None and length != len(rows[0]):
        raise ValueError(f"length {length} differs from the {len(rows[0])} hints")
    return len(rows[0])
