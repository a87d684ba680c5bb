"""`dsl compare`: a grid of models, samplers, steps and seeds, cell by cell, into one table."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from dsl.arguments import LENGTHS, within
from dsl.cli.options import parse
from dsl.evaluation.settings import JudgeSettings


@dataclass(frozen=True, kw_only=True)
class CompareOptions(JudgeSettings):
    """Compare samplers on one or more models: quality against true denoiser calls.

    A CELL is MODEL/SAMPLER, in which T stands for every number of --steps: text8-tiny/mdlm@T,
    text8-tiny-ar/causal. Each is drawn with every seed. Cells that are finished are not drawn
    again; the same command goes on where it stopped. OUT holds the samples, a result for each,
    results.json, a Markdown table and the figure. Settings in which rows differ (temperature,
    top-p, calls, training) are named, with a warning where nobody chose the difference.
    """

    cells: tyro.conf.Positional[tuple[str, ...]]
    """What to draw."""
    out: Path
    """Where everything goes."""
    steps: tuple[int, ...] = (8, 16, 32, 64, 128)
    """The values of T."""
    seeds_drawn: int = 3
    """Seeds 0, 1, … of the samples."""
    n: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 256
    """Samples in a cell."""
    length: int | None = None
    """Tokens in a sample; the model's own length if not given."""
    batch_size: int = 64
    """Samples drawn side by side."""
    workers: int = 1
    """Cells drawn at the same time; they share the processor's cores."""
    force: bool = False
    """Compare even results that were measured by different protocols."""
    json: bool = False
    """Print results.json instead of the table."""

    def check(self) -> None:
        """Refuse values that no run can have."""
        super().check()
        within(self, n=(1, 10**7), seeds_drawn=(1, 10**4), steps=(1, 10**6), length=LENGTHS)
        within(self, batch_size=(1, 10**6), workers=(1, 256))


def main(arguments: Sequence[str]) -> None:
    """Draw what is missing, measure what is not measured, sum up."""
    options = parse(CompareOptions, "compare", arguments)
    from dsl import files
    from dsl.cli.progress import progress
    from dsl.evaluation.comparison import Grid, compare
    from dsl.evaluation.summary import markdown

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
                bar.console.print(f"drew {done} of {total} cells")

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
        from dsl.figures.tradeoff import tradeoff

        tradeoff(rows, held_out, path)
    except ImportError as error:
        print(f"no figure: {error}", file=sys.stderr)
