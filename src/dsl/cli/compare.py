"""`dsl compare`: compare models and samplers over steps and seeds."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from dsl._util.validate import LENGTHS, within
from dsl._util.words import counted
from dsl.cli.options import parse
from dsl.evaluation import JudgeSettings


@dataclass(frozen=True, kw_only=True)
class Options(JudgeSettings):
    """Compare samplers on one or more models: quality against true denoiser calls.

    A CELL is MODEL/SAMPLER; T is replaced by every value of --steps: text8-tiny/mdlm@T,
    text8-tiny-ar/causal. Every cell is sampled with every seed. Finished cells are reused, so the
    same command resumes an interrupted comparison. OUT receives the samples, one result per cell,
    results.json, a Markdown table and the figure. Settings that differ between rows (temperature,
    top-p, calls for equal steps, training) are listed, with a warning if the difference comes from
    a default.

    Example: dsl compare text8-tiny/mdlm@T text8-tiny/edm@T --reference text8-prefix --out grid
    """

    cells: tyro.conf.Positional[tuple[str, ...]]
    """Cells to compare, each MODEL/SAMPLER."""
    out: Path
    """Output directory."""
    steps: tuple[int, ...] = (8, 16, 32, 64, 128)
    """Values of T."""
    seeds_drawn: int = 3
    """Number of sampling seeds: 0, 1, …"""
    n: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 256
    """Samples per cell."""
    length: int | None = None
    """Tokens per sample. Default: the model's length."""
    batch_size: int = 64
    """Samples per batch."""
    workers: int = 1
    """Cells sampled in parallel; they share the CPU cores."""
    force: bool = False
    """Compare results even if they were measured with different protocols."""
    json: bool = False
    """Print results.json instead of the table."""

    def check(self) -> None:
        """Reject invalid values."""
        super().check()
        within(self, n=(1, 10**7), seeds_drawn=(1, 10**4), steps=(1, 10**6), length=LENGTHS)
        within(self, batch_size=(1, 10**6), workers=(1, 256))


def main(arguments: Sequence[str]) -> None:
    """Sample missing cells, evaluate new samples, summarize."""
    options = parse(Options, "compare", arguments)
    from dsl._util import files
    from dsl.cli.progress import progress
    from dsl.evaluation import Grid, compare, markdown

    grid = Grid(
        options.cells,
        options.steps,
        options.seeds_drawn,
        options.n,
        options.length,
        options.batch_size,
        options.workers,
        options.device,
    )
    files.require_place(options.out, directory=True)
    with progress(None, "drawing") as bar:

        def drawn(done: int, total: int) -> None:
            bar.reach(done, total, "drawing")
            if done and not bar.console.is_terminal:
                bar.console.print(f"sampled {done} of {counted(total, 'cell')}")

        found = compare(
            grid,
            options,
            options.out,
            force=options.force,
            command=["dsl", "compare", *arguments],
            tell=bar.step,
            on_cell=drawn,
        )
    table = markdown(found.rows, found.held_out)
    files.write_text(options.out / "table.md", table)
    _figure(found.rows, found.held_out, options.out / "tradeoff.svg")
    print(json.dumps(found.record) if options.json else table, end="\n")
    for difference in found.differences:
        print(
            f"{'warning' if difference.by_default else 'note'}: {difference.text}", file=sys.stderr
        )


def _figure(rows: list[dict[str, Any]], held_out: dict[str, float], path: Path) -> None:
    try:
        from dsl.apps.reproduce.tradeoff import tradeoff

        tradeoff(rows, held_out, path)
    except ImportError as error:
        print(f"no figure: {error}", file=sys.stderr)
