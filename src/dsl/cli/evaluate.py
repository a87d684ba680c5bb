"""`dsl evaluate`: measure samples against real text, with errors and a protocol."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from dsl.cli.options import parse
from dsl.evaluation.settings import JudgeSettings
from dsl.files import require_place

FEW = 100
"""Below so many samples MAUVE's clusters hold a handful of points each."""


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(JudgeSettings):
    """Measure samples: MAUVE, GenPPL, entropy, repetition, novelty, real words, NFE, speed.

    Every score stands beside the same score of real text that the reference does not contain.
    The judges that come by default are small and can be had without a hub; the paper's protocol
    takes GPT-2 Large for both. Numbers by different judges cannot be compared.

    With --judge moses the samples are molecules, written as SMILES, and measured by the benchmark
    MOSES (extra molecules): valid, unique, novel, diverse, and how far they are from its test sets.
    """

    samples: tyro.conf.Positional[Path]
    """A file that `dsl sample` wrote."""
    model: str | None = None
    """Whose tokenizer counts; the samples' own model if not given."""
    out: Path | None = None
    """Write the whole result, with its protocol, here."""
    json: bool = False
    """Print JSON instead of a table."""

    def check(self) -> None:
        """Refuse values that no run can have."""
        super().check()
        if self.out is not None:
            require_place(self.out)


def main(arguments: Sequence[str]) -> None:
    """Read, measure, write, print."""
    options = parse(EvaluateOptions, "evaluate", arguments)
    from dsl import files
    from dsl.cli.progress import progress
    from dsl.evaluation.measurement import evaluate

    with progress(None, "evaluating") as bar:
        result = evaluate(options.samples, options, model=options.model, tell=bar.step)
    if options.out is not None:
        files.write_text(options.out, json.dumps(result, indent=2) + "\n")
    if options.json:
        print(json.dumps(result))
        return
    show(result)


def show(result: dict[str, Any]) -> None:
    """Print scores beside those of held-out text."""
    from rich.console import Console
    from rich.table import Table

    from dsl.evaluation.protocol import MEASURES

    if "warnings" in result:
        show_molecules(result)
        return
    table = Table("measure", "samples", "held-out real text")
    for name, label in MEASURES.items():
        if name in result["scores"]:
            table.add_row(label, shown(result["scores"][name]), shown(result["held_out"][name]))
    table.add_row("denoiser calls", shown(result["nfe"]), "")
    table.add_row("tokens per second", f"{result['tokens_per_second'] or 0:.0f}", "")
    console = Console()
    console.print(table)
    protocol = result["protocol"]
    console.print(
        f"{result['samples']} samples against {protocol['reference_texts']} blocks of "
        f"{protocol['reference'].split()[0]}; features {protocol['features'] or 'none'}, "
        f"language model {protocol['judge'] or 'none'}."
    )
    if result["samples"] < FEW:
        console.print(
            f"{result['samples']} samples are few, and MAUVE says little then: read it beside the "
            "held-out column only."
        )


def show_molecules(result: dict[str, Any]) -> None:
    """Print scores with how many molecules they are of, beside those of held-out molecules."""
    from rich.console import Console
    from rich.table import Table

    from dsl.evaluation.protocol import MOLECULES

    table = Table("measure", "samples", "of", "held-out molecules")
    for name, label in MOLECULES.items():
        score, held_out = result["scores"][name], result["held_out"].get(name)
        real = "" if held_out is None else shown(held_out)
        table.add_row(label, shown(score, "too few to say"), f"{score['n']:,}", real)
    table.add_row("denoiser calls", shown(result["nfe"]), f"{result['samples']:,}", "")
    console = Console()
    console.print(table)
    for warning in result["warnings"]:
        console.print(f"{warning}.")


def shown(score: dict[str, float | None], unknown: str = "too short to say") -> str:
    """Print a number with its error."""
    value, error = score["mean"], score.get("stderr")
    if value is None:
        return unknown
    return f"{value:.4g}" if error is None else f"{value:.4g} ± {error:.2g}"
