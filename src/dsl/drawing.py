"""Drawing into a file: what is there is kept, what is missing is drawn, processes share it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from dsl.automaton import Automaton
from dsl.diagnostics.trace import Trace
from dsl.hints import Hint
from dsl.jobs import Job, Start, batches, run
from dsl.known_text import Ending, ended, parse_gaps, prompted, unseen
from dsl.loading import Model
from dsl.processes import Process
from dsl.sample_file import Sample, Store
from dsl.sampling.sampler import Sampler

Part = tuple[Job, Sequence[int]]
"""A job, and the indices of its sequences that are to be drawn side by side."""


@dataclass(frozen=True)
class Watch:
    """Who is told what while sequences are drawn."""

    on_step: Callable[[int], None] = lambda _: None
    on_samples: Callable[[list[Sample], int], None] = lambda *_: None
    """Told the samples of a batch, and how many tokens they have."""


@dataclass(frozen=True)
class Drawing:
    """Where drawn sequences go."""

    about: dict[str, Any]
    out: Path | None = None
    overwrite: bool = False
    trace: Path | None = None
    process: Process = field(default_factory=Process)
    watch: Watch = field(default_factory=Watch)

    def run(self, n: int, parts: Callable[[list[int]], Iterable[Part]]) -> Store:
        """Draw the sequences of 0 … n - 1 that are missing, and write them.

        Args:
            n: How many sequences there shall be.
            parts: Cuts the missing indices that fall to this process into batches.
        """
        process = self.process
        with Store.open(
            self.out,
            self.about,
            overwrite=self.overwrite,
            rank=process.rank,
            ranks=process.count,
        ) as store:
            process.wait()  # until all have read what is there, before anyone adds to it
            missing = [index for index in range(n) if index not in store.done]
            for job, indices in parts(missing[process.rank :: process.count]):
                self._batch(store, job, indices)
            process.wait()
            if process.rank == 0:
                store.merge()
        return store

    def _batch(self, store: Store, job: Job, indices: Sequence[int]) -> None:
        started, batch = time.monotonic(), job.batch(indices)
        trace = self._tracer(job, batch.denoiser)
        state = run(batch, trace.follow if trace else None, self.watch.on_step)
        samples = job.finish(batch, state, time.monotonic() - started)
        if trace:  # first: what is in the store will not be drawn, and so not traced, again
            self._append(trace, fresh=not store.done)
        store.add(samples)
        self.watch.on_samples(samples, state.tokens.numel())

    def _tracer(self, job: Job, denoiser: Any) -> Trace | None:
        if self.trace is None:
            return None
        # sharpness asks about every position at once, which not every network can be asked
        whole = job.start.tokens.shape[1] <= job.model.length
        return Trace(denoiser, measure_sharpness=whole and "endpoints" in job.model.answers)

    def _append(self, trace: Trace, *, fresh: bool) -> None:
        assert self.trace is not None
        path = self.trace
        if self.process.count > 1:
            path = path.with_name(f"{path.name}.{self.process.rank}-of-{self.process.count}")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w" if fresh else "a", encoding="utf-8") as file:
            file.writelines(json.dumps(record) + "\n" for record in trace.records)


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts of which something is known, each to be completed n times.

    Sequence i is version i mod n of text i div n.
    """

    model: Model
    sampler: Sampler
    hints: Sequence[Sequence[Hint]]
    n: int = 1
    seed: int = 0
    ending: Ending = "open"
    """What follows them."""
    form: Automaton | None = None
    """Which texts are allowed, if not all."""
    guidance: float = 1.0
    """How often what is known of a text counts."""

    def __len__(self) -> int:
        return len(self.hints) * self.n

    def parts(self, batch_size: int) -> Callable[[list[int]], Iterator[Part]]:
        """Cut sequences into batches, each of neighbouring texts of one length."""

        def cut(indices: list[int]) -> Iterator[Part]:
            for window in batches(indices, batch_size):
                # neighbours only: texts are printed in their order, as soon as they are drawn
                for length, group in groupby(window, lambda i: len(self.hints[i // self.n])):
                    same = list(group)
                    rows = [self.hints[i // self.n] for i in same]
                    start = Start.known(self.model, rows)
                    room = unseen(self.model, length, self.ending)
                    job = Job(
                        self.model,
                        self.sampler,
                        start,
                        self.seed,
                        tuple(same),
                        room,
                        self.form,
                        self.guidance,
                    )
                    yield job, same

        return cut


def completions(
    model: Model,
    sampler: Sampler,
    texts: Sequence[str],
    *,
    length: int,
    suffix: str = "",
    n: int = 1,
    seed: int = 0,
    form: Automaton | None = None,
    guidance: float = 1.0,
) -> Texts:
    """Begin every sequence with one of the texts, and end it with the suffix."""
    rows = [prompted(model, text, length, suffix) for text in texts]
    return Texts(model, sampler, rows, n, seed, form=form, guidance=guidance)


def infillings(
    model: Model,
    sampler: Sampler,
    texts: Sequence[str],
    *,
    ending: Ending = "unknown",
    n: int = 1,
    seed: int = 0,
    guidance: float = 1.0,
) -> Texts:
    """Fill the gaps of every text; one that has none, or cannot be read, is named by its line."""
    rows = []
    for number, text in enumerate(texts, 1):
        try:
            rows.append(ended(model, parse_gaps(model, text), ending))
            model.require_length(len(rows[-1]) + unseen(model, len(rows[-1]), ending))
        except ValueError as error:
            where = f"line {number}: " if len(texts) > 1 else ""
            raise ValueError(f"{where}{error}") from error
    return Texts(model, sampler, rows, n, seed, ending, guidance=guidance)
