"""`dsl figure`: draw what runs and comparisons have written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro


@dataclass(frozen=True)
class FigureOptions:
    """Draw a figure from files, never from a model.

    curves: validation against training tokens, from the directories of runs. tradeoff: quality
    against denoiser calls, from the results.json of `dsl compare`. paths: the SNR of every token at
    every step, from files of `dsl sample --trace`, as SVG.
    """

    what: tyro.conf.Positional[Literal["curves", "tradeoff", "paths"]]
    """Which figure."""
    sources: tyro.conf.Positional[tuple[Path, ...]]
    """Runs, one results.json, or traces."""
    out: Path
    """The file to write; its ending says the format."""


def main(arguments: Sequence[str]) -> None:
    """Read, draw, say where."""
    options = tyro.cli(FigureOptions, args=list(arguments), prog="dsl figure")
    if not options.sources:
        raise ValueError(f"dsl figure {options.what} needs at least one file or directory")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    if options.what == "curves":
        from dsl.figures.curves import curves

        curves({run.name: run for run in options.sources}, options.out)
    elif options.what == "paths":
        from dsl.figures.paths import paths, read_trace

        if options.out.suffix != ".svg":
            raise ValueError(f"this figure is an SVG; got {options.out}")
        traces = {trace.stem: read_trace(trace) for trace in options.sources}
        if len(traces) < len(options.sources):
            raise ValueError("panels are named after their files, which must have different names")
        options.out.write_text(paths(traces), encoding="utf-8")
    else:
        from dsl.figures.tradeoff import tradeoff

        record = json.loads(options.sources[0].read_text(encoding="utf-8"))
        if "rows" not in record:
            raise ValueError(f"{options.sources[0]} is not the results.json of dsl compare")
        held_out = {name: score["mean"] for name, score in record["held_out"].items()}
        tradeoff(record["rows"], held_out, options.out)
    print(options.out)
