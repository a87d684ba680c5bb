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
from dsl._util.words import counted
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

    `dsl evaluate MEASURE MODEL CORPUS` measures a model instead of samples. `--judge BENCHMARK`
    measures samples with a benchmark of their own: moses takes SMILES and measures validity,
    uniqueness, novelty, diversity, and distance to its test sets (extra molecules).

    Example: dsl evaluate samples.jsonl --reference text8-prefix --out result.json
    """

    choices: ClassVar[dict[str, str]] = {
        "Measures of models": "dsl.measures",
        "Benchmarks": "dsl.benchmarks",
    }
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
    """Print scores next to those of held-out text or molecules."""
    from rich.console import Console
    from rich.table import Table

    from dsl.evaluation import MEASURES

    scores, held_out, n = result["scores"], result["held_out"], result["samples"]
    console, molecules = Console(), "warnings" in result
    unknown = "too few to say" if molecules else "too short to say"
    counts = ["of"] if molecules else []
    real = "held-out molecules" if molecules else "held-out real text"
    table = Table("measure", "samples", *counts, real)
    for name in (name for name in MEASURES if name in scores):
        own = [f"{scores[name]['n']:,}"] if molecules else []
        beside = shown(held_out[name], unknown) if name in held_out else ""
        table.add_row(MEASURES[name], shown(scores[name], unknown), *own, beside)
    table.add_row("denoiser calls", shown(result["nfe"]), *([f"{n:,}"] if molecules else []), "")
    if molecules:
        console.print(table)
        for warning in result["warnings"]:
            console.print(f"{warning}.")
        return
    table.add_row("tokens per second", f"{result['tokens_per_second'] or 0:.0f}", "")
    console.print(table)
    protocol = result["protocol"]
    console.print(
        f"{counted(n, 'sample')} against {counted(protocol['reference_texts'], 'block')} of "
        f"{protocol['reference'].split()[0]}; features {protocol['features'] or 'none'}, "
        f"language model {protocol['judge'] or 'none'}."
    )
    if n < FEW and "mauve" in scores:
        console.print(
            f"MAUVE is unreliable with only {counted(n, 'sample')}: "
            "compare it with the held-out column only."
        )


def shown(score: dict[str, Any], unknown: str = "") -> str:
    """Format a score with its standard error."""
    value, error = score["mean"], score.get("stderr")
    if value is None:
        return unknown
    return f"{value:.4g}" if error is None else f"{value:.4g} ± {error:.2g}"
