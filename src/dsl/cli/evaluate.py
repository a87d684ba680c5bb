"""`dsl evaluate`: measure samples against real text, or a model against a corpus."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import tyro

from dsl._util.files import require_place
from dsl._util.registry import Registry
from dsl.cli.options import parse
from dsl.evaluation import JudgeSettings

MEASURES: Registry[Any] = Registry("dsl.measures", "measure")
"""Measures of a model on a corpus, such as `dsl evaluate repair MODEL CORPUS`."""

FEW = 100
"""With fewer samples, MAUVE's clusters contain only a handful of points each."""


@dataclass(frozen=True, kw_only=True)
class Options(JudgeSettings):
    """Measure samples: MAUVE, GenPPL, entropy, repetition, novelty, real words, NFE, speed.

    Every score is shown next to the same score of held-out real text. The default judges are small
    and need no hub access; the paper's protocol uses GPT-2 Large for both. Scores from different
    judges are not comparable.

    `dsl evaluate MEASURE MODEL CORPUS` measures a model instead: repair (how much damaged text it
    restores) or divergence (KL divergences from the known source of a corpus).

    With --judge moses the samples are SMILES, measured by the MOSES benchmark (extra molecules):
    validity, uniqueness, novelty, diversity, and distance to its test sets.

    Example: dsl evaluate samples.jsonl --reference text8-prefix --out result.json
    """

    choices: ClassVar[dict[str, str]] = {"Measures of models": "dsl.measures"}
    samples: tyro.conf.Positional[Path]
    """Samples file written by `dsl sample`."""
    model: str | None = None
    """Model whose tokenizer counts tokens. Default: the model of the samples."""
    out: Path | None = None
    """Write the full result and its protocol to this JSON file."""
    json: bool = False
    """Print JSON instead of a table."""

    def check(self) -> None:
        """Reject invalid values."""
        super().check()
        if self.out is not None:
            require_place(self.out)


def main(arguments: Sequence[str]) -> None:
    """Evaluate samples, or dispatch to a measure of models."""
    if arguments and arguments[0] in MEASURES:
        MEASURES[arguments[0]].main(arguments[1:])
        return
    options = parse(Options, "evaluate", arguments)
    from dsl._util import files
    from dsl.cli.progress import progress
    from dsl.evaluation import evaluate

    with progress(None, "evaluating") as bar:
        result = evaluate(options.samples, options, model=options.model, tell=bar.step)
    if options.out is not None:
        files.write_text(options.out, json.dumps(result, indent=2) + "\n")
    if options.json:
        print(json.dumps(result))
        return
    show(result)


def show(result: dict[str, Any]) -> None:
    """Print scores next to those of held-out text."""
    from rich.console import Console
    from rich.table import Table

    from dsl.evaluation import MEASURES

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
            f"MAUVE is unreliable with only {result['samples']} samples: compare it with the "
            "held-out column only."
        )


def show_molecules(result: dict[str, Any]) -> None:
    """Print scores and molecule counts next to the scores of held-out molecules."""
    from rich.console import Console
    from rich.table import Table

    from dsl.evaluation import MOLECULES

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
    """Format a score with its standard error."""
    value, error = score["mean"], score.get("stderr")
    if value is None:
        return unknown
    return f"{value:.4g}" if error is None else f"{value:.4g} ± {error:.2g}"
