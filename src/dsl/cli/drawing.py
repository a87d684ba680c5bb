"""Shared by `dsl sample` and `dsl infill`: reading files, progress and summary."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from dsl._util.files import parse_json
from dsl._util.processes import this_process
from dsl._util.words import counted
from dsl.cli.options import OutputOptions
from dsl.cli.progress import progress
from dsl.generation import Request, Sample, Sink, Store, run
from dsl.likelihoods import Mean

SEPARATOR = "---"
"""The line between two printed texts that may have several lines."""


def read_lines(source: Path) -> list[str]:
    """Read one text per line; - is the standard input."""
    try:
        content = _content(source).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{source} is not UTF-8 text: {error}") from error
    lines = content.replace("\r\n", "\n").removesuffix("\n").split("\n")
    if lines == [""]:
        raise ValueError(f"{source} has no texts")
    return lines


def read_json(source: Path) -> Any:
    """Read JSON; - is the standard input."""
    return parse_json(_content(source), str(source), unique=True)


MOST_BYTES = 2**27
"""Bytes of a file of texts or hints; a device such as /dev/zero never ends."""


def _content(source: Path) -> bytes:
    standard = str(source) == "-"
    with nullcontext(sys.stdin.buffer) if standard else source.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"{source} must have at most {MOST_BYTES:,} bytes, got more")
    return content


def draw(request: Request, options: OutputOptions, command: Sequence[str]) -> None:
    """Draw the missing sequences, write or print them, and print a summary."""
    process = this_process()
    began, drawn = time.monotonic(), 0
    silent = options.out is not None or options.json
    separated = len(request) > 1 and request.model.can_say("\n")
    with progress(len(request), "sampling", visible=process.rank == 0) as bar:

        def drew(samples: list[Sample], tokens: int) -> None:
            nonlocal drawn
            drawn += len(samples) * process.count
            bar.advance(len(samples) * process.count, tokens * process.count)
            for sample in () if silent else samples:
                between = f"{SEPARATOR}\n" if separated and sample.index else ""
                print(f"{between}{sample.text}", flush=True)

        sink = Sink(
            options.out,
            options.overwrite,
            shlex.join(["dsl", *command]),
            options.trace,
            process,
            lambda step: bar.step(f"step {step}"),
            drew,
        )
        store = run(request, sink)
    if process.rank == 0:
        _report(store, options, time.monotonic() - began, drawn)


def _report(store: Store, options: OutputOptions, seconds: float, drawn: int) -> None:
    samples = store.samples.values()
    nfe = Mean.of([sample.nfe for sample in samples]).to_dict()
    tokens = sum(len(sample.tokens) for sample in samples) / len(samples) * drawn
    report = {
        "n": len(store.samples),
        "drawn_now": drawn,
        "seconds": round(seconds, 3),
        "tokens_per_second": round(tokens / seconds, 1) if drawn else None,
        "nfe_mean": nfe["mean"],
        "nfe_stderr": nfe["stderr"],
        "out": str(options.out) if options.out else None,
        **store.about,
    }
    if options.json:
        if options.out is None:
            report["samples"] = [store.samples[index].text for index in sorted(store.samples)]
        print(json.dumps(report, ensure_ascii=False))
    elif options.out is not None:
        print(
            f"{counted(report['n'], 'sequence')} in {options.out}: {drawn} drawn now in "
            f"{seconds:.1f} s, mean NFE {report['nfe_mean']:.1f}",
            file=sys.stderr,
        )
