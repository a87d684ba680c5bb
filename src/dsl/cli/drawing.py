"""What `dsl sample` and `dsl infill` share: samplers by name or file, texts, progress, summary."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dsl import presets
from dsl.cli.options import DrawingOptions
from dsl.cli.progress import progress
from dsl.drawing import Drawing, Texts, Watch
from dsl.processes import this_process
from dsl.sample_file import Sample, Store
from dsl.sampling.sampler import Sampler, redrawn
from dsl.sampling.specification import read_file


def read_sampler(text: str, options: DrawingOptions) -> Sampler:
    """Build a sampler from its name, or from a YAML file with a full specification."""
    written = text.endswith((".yaml", ".yml", ".json"))
    sampler = read_file(Path(text)) if written else presets.sampler(text)
    return redrawn(sampler, temperature=options.temperature, top_p=options.top_p)


def read_lines(source: Path) -> list[str]:
    """Read texts, one in every line; - is the standard input."""
    try:
        content = sys.stdin.read() if str(source) == "-" else source.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{source} is not UTF-8 text: {error}") from error
    lines = content.removesuffix("\n").split("\n")
    if lines == [""]:
        raise ValueError(f"{source} has no texts")
    return lines


def draw(texts: Texts, description: dict[str, Any], options: DrawingOptions) -> None:
    """Draw the sequences that are missing, write or print them, and sum up."""
    process = this_process()
    began, drawn = time.monotonic(), 0
    silent = options.out is not None or options.json
    with progress(len(texts), "sampling", visible=process.rank == 0) as bar:

        def drew(samples: list[Sample], tokens: int) -> None:
            nonlocal drawn
            drawn += len(samples) * process.count
            bar.advance(len(samples) * process.count, tokens * process.count)
            for sample in () if silent else samples:
                print(sample.text, flush=True)

        watch = Watch(lambda step: bar.step(f"step {step}"), drew)
        drawing = Drawing(
            description, options.out, options.overwrite, options.trace, process, watch
        )
        store = drawing.run(len(texts), texts.parts(options.batch_size))
    if process.rank == 0:
        _report(store, options, time.monotonic() - began, drawn)


def _report(store: Store, options: DrawingOptions, seconds: float, drawn: int) -> None:
    nfe = [sample.nfe for sample in store.samples.values()]
    tokens = sum(len(sample.tokens) for sample in store.samples.values()) / len(nfe) * drawn
    report = {
        "n": len(store.samples),
        "drawn_now": drawn,
        "seconds": round(seconds, 3),
        "tokens_per_second": round(tokens / seconds, 1) if drawn else None,
        "nfe_mean": statistics.fmean(nfe),
        "nfe_stderr": statistics.stdev(nfe) / len(nfe) ** 0.5 if len(nfe) > 1 else None,
        "out": str(options.out) if options.out else None,
        **store.about,
    }
    if options.json:
        if options.out is None:
            report["samples"] = [store.samples[index].text for index in sorted(store.samples)]
        print(json.dumps(report, ensure_ascii=False))
    elif options.out is not None:
        print(
            f"{report['n']} sequences in {options.out}: {drawn} drawn now in {seconds:.1f} s, "
            f"mean NFE {report['nfe_mean']:.1f}",
            file=sys.stderr,
        )


def what_is_given(source: Path | None, texts: Sequence[str], guidance: float) -> str:
    """Name what is known of the texts: themselves, or a hash of a file of many."""
    often = "" if guidance == 1 else f", counted {guidance:g} times"
    if source is None:
        return f"{texts[0]}{often}"
    import hashlib

    digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
    return f"{len(texts)} texts {digest}{often}"
