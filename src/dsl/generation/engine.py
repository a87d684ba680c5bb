"""Run a request: draw the missing sequences and store them.

`generate` and `infill` do in Python what `dsl sample` and `dsl infill` do in the shell.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsl._util.config import shown
from dsl._util.defaults import DEFAULT_MODEL
from dsl._util.processes import Process
from dsl._util.validate import sequence
from dsl._util.validate import text as require_text
from dsl.checkpoints.loading import Model, loaded
from dsl.core.denoiser import Denoiser
from dsl.generation import prompts as known_text
from dsl.generation.options import InfillOptions, SampleOptions, keywords
from dsl.generation.request import Batch, Request, completion, infilling, model_length
from dsl.generation.samples import Sample, Store
from dsl.samplers.base import Sampler
from dsl.samplers.state import State

if TYPE_CHECKING:
    from dsl.generation.trace import Trace

Follow = Callable[..., Iterator[State]]
"""Yields the states of an iterator unchanged and records them, such as `Trace.follow`."""


@dataclass(frozen=True)
class Sink:
    """Where samples are written, and callbacks while they are drawn."""

    out: Path | None = None
    """A samples file. A file with part of the same request is completed."""
    overwrite: bool = False
    """Overwrite a file of another request."""
    command: str = ""
    """The command to record in the file."""
    trace: Path | None = None
    """A file that records every step."""
    process: Process = field(default_factory=Process)
    on_step: Callable[[int], None] = lambda _: None
    on_samples: Callable[[list[Sample], int], None] = lambda *_: None
    """Called with the samples of a batch and their number of tokens."""


def run(request: Request, sink: Sink | None = None) -> Store:
    """Draw the sequences of a request that the sink does not have yet.

    Processes share the sequences; a text does not depend on the process that draws it.
    """
    sink = sink or Sink()
    process = sink.process
    with Store.open(
        sink.out,
        request.about(sink.command),
        overwrite=sink.overwrite,
        rank=process.rank,
        ranks=process.count,
    ) as store:
        process.wait()  # all processes must have read the file before one writes to it
        missing = [index for index in range(len(request)) if index not in store.done]
        for batch in request.batches(missing[process.rank :: process.count]):
            _draw(batch, store, sink)
        process.wait()
        if process.rank == 0:
            store.merge()
    return store


def _draw(batch: Batch, store: Store, sink: Sink) -> None:
    began, trace = time.monotonic(), None if sink.trace is None else _tracer(batch)
    state = walk(batch, None if trace is None else trace.follow, sink.on_step)
    samples = batch.finish(state, time.monotonic() - began)
    if trace is not None:  # first, because stored samples are not drawn and traced again
        _append(trace, sink, fresh=not store.done)
    store.add(samples)
    sink.on_samples(samples, state.tokens.numel())


def walk(
    batch: Batch, follow: Follow | None = None, on_step: Callable[[int], None] | None = None
) -> State:
    """Draw a batch and return its last state."""
    states, state = batch.states, batch.start
    if follow:
        states = follow(states, batch.start, indices=batch.indices)
    for reached in states:
        state = reached
        if on_step:
            on_step(state.step)
    return state


def _tracer(batch: Batch) -> Trace:
    from dsl.generation.trace import Trace

    # sharpness needs logits at every position, which not every network has
    model = batch.request.model
    whole = batch.start.tokens.shape[1] <= model.length
    return Trace(batch.denoiser, measure_sharpness=whole and model.can_answer(Denoiser))


def _append(trace: Trace, sink: Sink, *, fresh: bool) -> None:
    assert sink.trace is not None
    path, process = sink.trace, sink.process
    if process.count > 1:
        path = path.with_name(f"{path.name}.{process.rank}-of-{process.count}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w" if fresh else "a", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in trace.records)


@keywords(SampleOptions)
def generate(
    model: str | Path | Model = DEFAULT_MODEL,
    n: int = 1,
    *,
    sampler: str | Sampler = SampleOptions.sampler,
    prompts: Sequence[str] | None = None,
    hints: Sequence[Any] | None = None,
    **options: Any,
) -> list[Sample]:
    """Draw n sequences, optionally given a prompt, a suffix, or hints about positions.

    >>> for sample in dsl.generate("oracle:cyclic-7", n=3, prompt="BC", sampler="roar"):
    ...     print(sample.text)

    A model of documents chooses the length of its text: `text` stops at the end token, `tokens` is
    the whole sequence.

    Args:
        model: A model, or its name.
        n: Number of sequences.
        sampler: A sampler, its name, such as "remdm-conf@64:temperature=0.8", or a YAML file.
        prompts: Several beginnings in place of `prompt`; n sequences for each.
        hints: A hint for each position, in place of prompt and suffix: one list for all
            sequences, or one list for each. A hint is an object such as `Confident(2, 0.8)`, or
            plain data as `dsl sample --hints` reads it: None, "a", {"token": "a",
            "confidence": 0.8}, {"allowed": ["a", "b"]}, {"n_best": {"a": 0.6}}.
        **options: See below.
    """
    chosen, path = _options(SampleOptions, sampler, n=n, **options)
    found = loaded(model, length=model_length(chosen, hints))
    return _samples(completion(found, chosen, sampler=path, prompts=prompts, hints=hints))


@keywords(InfillOptions)
def infill(
    text: str | Sequence[str],
    model: str | Path | Model = DEFAULT_MODEL,
    n: int = 1,
    *,
    sampler: str | Sampler = InfillOptions.sampler,
    **options: Any,
) -> list[Sample]:
    """Fill the gaps of a text: `[12]` is a gap of twelve tokens. The other text does not change.

    >>> dsl.infill("AB[3]FG", "oracle:cyclic-7")[0].text
    'ABCDEFG'

    For a model of documents, the text is the start of a document with an unknown continuation.

    Args:
        text: A text with gaps, or a list of such texts.
        model: A model, or its name.
        n: Versions of each text.
        sampler: A sampler, its name, or a YAML file.
        **options: See below.
    """
    texts = [text] if isinstance(text, str) else sequence("text", text, "texts with gaps")
    for each in texts:
        require_text("text", each)
        known_text.require_gap(each)
    if not texts:
        raise ValueError("text must be a text with gaps, or a list of them; got none")
    chosen, path = _options(InfillOptions, sampler, n=n, **options)
    found = loaded(model, length=known_text.count_characters(texts[0]))
    return _samples(infilling(found, texts, chosen, sampler=path))


def _options(kind: type[Any], sampler: str | Sampler, **options: Any) -> tuple[Any, Sampler | None]:
    """Build options of a kind; a sampler that is not a name is returned beside them."""
    if not isinstance(sampler, str | Sampler) or isinstance(sampler, type):
        raise ValueError(f"sampler must be a name or a sampler, got {shown(sampler)}")
    try:
        named = {"sampler": sampler} if isinstance(sampler, str) else {}
        chosen = kind(**options, **named)
    except TypeError as error:
        raise TypeError(str(error).replace(f"{kind.__name__}.__init__()", "generation")) from None
    chosen.check()
    return chosen, None if isinstance(sampler, str) else sampler


def _samples(request: Request) -> list[Sample]:
    drawn = run(request).samples
    return [drawn[index] for index in sorted(drawn)]
