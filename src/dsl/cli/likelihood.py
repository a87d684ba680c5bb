"""`dsl likelihood`: score a corpus with every estimator, each with its standard error."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from dsl.cli.options import parse


@dataclass(frozen=True)
class LikelihoodOptions:
    """Score a corpus by ROAR and along every contour, and audit how far they lie apart.

    Under torchrun the blocks are shared by the processes; the numbers do not change.
    """

    model: tyro.conf.Positional[str]
    """A bundled model such as text8-tiny, a checkpoint directory, a hub id, or an oracle."""
    corpus: tyro.conf.Positional[str]
    """A text file, a .jsonl file with a "text" in every line, such as `dsl sample` writes, or a
    corpus that `dsl data` knows, of which blocks are spread evenly over the split."""
    split: str | None = None
    """The split that blocks are spread over: test, if a corpus is named; of a file, the first
    blocks are taken unless a split is said."""
    limit: int | None = None
    """Score at most so many blocks; 256 of a named corpus if not given."""
    length: int | None = None
    """Tokens in a block; the model's own length if not given."""
    budget: int = 64
    """Denoiser calls for each block and estimator."""
    only: tuple[str, ...] = ()
    """Use only these estimators: roar, shared, sequential, random-order, tabulated."""
    cutoff: float | None = None
    """Γ, where contours end; chosen once on blocks that are not scored, if not given."""
    table: Path | None = None
    """One more contour: JSON with "times" from 0 to 1 and "snr", a row of SNRs for each."""
    seed: int = 0
    """Where the random numbers start."""
    json: bool = False
    """Print JSON instead of a table."""
    device: str = "cpu"
    """Where the network runs, such as cuda:0."""
    cache: Path | None = None
    """Where corpora are kept."""

    def check(self) -> None:
        """Refuse values that no run can have."""
        if (self.limit is not None and self.limit < 1) or self.seed < 0:
            raise ValueError("--limit must be at least 1, and --seed at least 0")


def main(arguments: Sequence[str]) -> None:
    """Load, cut, score, print."""
    options = parse(LikelihoodOptions, "likelihood", arguments)
    from dsl.cli.blocks import read
    from dsl.cli.processes import this_process
    from dsl.cli.progress import progress
    from dsl.loading import load
    from dsl.scoring import Report, estimators, score

    model = load(options.model, length=options.length, device=options.device)
    length = model.length if options.length is None else options.length
    model.require_length(length)
    table = read_table(options.table, length) if options.table else None
    scored, spare = read(model, options.corpus, options.split, length, options.limit, options.cache)
    process = this_process()
    mine = list(range(len(scored)))[process.rank :: process.count]
    built = estimators(model.denoiser, max(options.budget, 4), 1.0, table=table)
    steps = len(mine) * len(options.only or built)
    with progress(steps, "scoring", visible=process.rank == 0) as bar:
        report = score(
            model,
            scored[mine],
            indices=mine,
            budget=options.budget,
            cutoff=options.cutoff,
            validation=spare if len(spare) else scored,
            table=table,
            seed=options.seed,
            only=options.only or None,
            on_progress=bar.advance,
        )
    estimates = process.join(report.estimates, mine, len(scored))
    if process.rank == 0:
        whole = Report(model, scored, estimates, report.cutoff)
        result: dict[str, Any] = {
            "corpus": options.corpus,
            "budget": options.budget,
            "seed": options.seed,
            **whole.to_dict(),
        }
        if "cutoff" in result:
            result["cutoff_chosen_on"] = chosen_on(options, len(spare))
        print(json.dumps(result)) if options.json else show(result)


def chosen_on(options: LikelihoodOptions, spare: int) -> str:
    """Say where Γ comes from."""
    if options.cutoff is not None:
        return "given"
    return f"{min(16, spare)} blocks that are not scored" if spare else "the scored blocks"


def read_table(path: Path, length: int) -> Any:
    """Read a tabulated contour."""
    import torch

    from dsl.path import Tabulated

    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        times = torch.tensor(data["times"], dtype=torch.float64)
        snr = torch.tensor(data["snr"], dtype=torch.float64)
    except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f'{path} must hold JSON with "times" and "snr", a row of numbers for each time: {error}'
        ) from error
    if times.ndim != 1 or tuple(snr.shape) != (len(times), length):
        raise ValueError(
            f'{path}: "snr" must have {length} numbers for each of the {times.numel()} "times", '
            f"got shape {tuple(snr.shape)}"
        )
    return Tabulated(times, snr)


EXACT = (("chain rule", "chain_rule"), ("VDM bound", "vdm_bound"), ("roar", "roar"))
"""Rows of the table that are no contours, and where the result has them."""


def show(result: dict[str, Any]) -> None:
    """Print the numbers as a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table("estimator", "bits per token", "bits per character")
    rows = {name: result[key] for name, key in EXACT if key in result}
    rows |= result.get("path_integral", {})
    for name, row in rows.items():
        characters, error = row.get("bits_per_character"), row.get("bits_per_character_stderr")
        table.add_row(
            name,
            f"{row['bits_per_token']:.4f} ± {row['stderr']:.4f}",
            "" if characters is None else f"{characters:.4f} ± {error:.4f}",
        )
    console = Console()
    console.print(table)
    console.print(f"{result['sequences']} blocks of {result['length']} tokens")
    if "audit" not in result:
        return
    found = result["audit"]
    console.print(
        f"Γ = {result['cutoff']:g}. "
        f"Audit: {' and '.join(found['between'])} differ by {found['spread']:.4f} ± "
        f"{found['stderr']:.4f} bits per token ({found['z']:.1f} standard errors)."
    )
