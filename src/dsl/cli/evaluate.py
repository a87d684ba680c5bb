"""`dsl evaluate`: measure samples against real text, with errors and a protocol."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from dsl.cli.options import parse

if TYPE_CHECKING:
    from dsl.evaluation.suite import Measure
    from dsl.loading import Model


FEW = 100
"""Below so many samples MAUVE's clusters hold a handful of points each."""


@dataclass(frozen=True, kw_only=True)
class JudgeOptions:
    """What samples are held against."""

    reference: str
    """The corpus of real text: a name that `dsl data` knows, or a file."""
    split: str = "test"
    """Its split."""
    features: str = "minilm"
    """MAUVE's feature model: minilm, a directory such as GPT-2 Large's, or none."""
    oracle: str = "smollm2"
    """GenPPL's language model: smollm2, a directory such as GPT-2 Large's, or none."""
    buckets: int | None = None
    """K-means clusters of MAUVE; a tenth of the samples if not given."""
    seeds: int = 3
    """K-means seeds of MAUVE."""
    resamples: int = 5
    """Bootstrap resamples of MAUVE."""
    novelty: int = 16
    """Tokens in an n-gram of novelty."""
    cache: Path | None = None
    """Where corpora, judges and features are kept."""

    def check(self) -> None:
        """Refuse values that no run can have."""
        if self.seeds < 1 or self.resamples < 0 or self.novelty < 1:
            raise ValueError("--seeds and --novelty must be at least 1, --resamples at least 0")


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(JudgeOptions):
    """Measure samples: MAUVE, GenPPL, entropy, repetition, novelty, real words, NFE, speed.

    Every score stands beside the same score of real text that the reference does not contain.
    The judges that come by default are small and can be had without a hub; the paper's protocol
    takes GPT-2 Large for both. Numbers by different judges cannot be compared.
    """

    samples: tyro.conf.Positional[Path]
    """A file that `dsl sample` wrote."""
    model: str | None = None
    """Whose tokenizer counts; the samples' own model if not given."""
    out: Path | None = None
    """Write the whole result, with its protocol, here."""
    json: bool = False
    """Print JSON instead of a table."""


def main(arguments: Sequence[str]) -> None:
    """Read, cut the reference, measure, print."""
    options = parse(EvaluateOptions, "evaluate", arguments)
    from rich.console import Console

    from dsl.loading import load
    from dsl.samples import read

    about, samples = read(options.samples)
    if not samples:
        raise ValueError(f"{options.samples} has no samples")
    model = load(options.model or about["model"], length=about.get("length"))
    errors = Console(stderr=True)
    with errors.status("preparing") as status:
        measure = build(options, model, len(samples), len(samples[0].tokens), status.update)
        result = measure.samples(samples, about)
    if options.out is not None:
        options.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if options.json:
        print(json.dumps(result))
        return
    show(result)


def build(options: JudgeOptions, model: Model, n: int, length: int, tell: Any) -> Measure:
    """Prepare corpus, judges and reference."""
    from dsl.cli.data import default_cache
    from dsl.data.corpora import prepare
    from dsl.evaluation.oracles import fetch
    from dsl.evaluation.suite import Measure, Reference, Settings

    cache = options.cache or default_cache()

    def judge(name: str) -> Path | None:
        return None if name == "none" else fetch(name, cache, on_progress=lambda w, *_: tell(w))

    corpus = prepare(options.reference, cache, on_progress=lambda what, *_: tell(what))
    settings = Settings(
        judge(options.features),
        judge(options.oracle),
        novelty=options.novelty,
        seeds=options.seeds,
        resamples=options.resamples,
        buckets=options.buckets,
    )
    if model.tokenizer is None:
        raise ValueError(f"{model.name} has no tokenizer, so no text can be cut like its samples")
    tell("reading the training text")
    reference = Reference.cut(corpus, options.split, n, length, model.tokenizer)
    reference = reference.with_training(corpus, model.tokenizer)
    return Measure(settings, reference, model.tokenizer, cache=cache, tell=tell)


def show(result: dict[str, Any]) -> None:
    """Print scores beside those of held-out text."""
    from rich.console import Console
    from rich.table import Table

    from dsl.evaluation.protocol import MEASURES

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
        f"language model {protocol['oracle'] or 'none'}."
    )
    if result["samples"] < FEW:
        console.print(
            f"{result['samples']} samples are few, and MAUVE says little then: read it beside the "
            "held-out column only."
        )


def shown(score: dict[str, float | None]) -> str:
    """Print a number with its error."""
    value, error = score["mean"], score.get("stderr")
    if value is None:
        return "too short to say"
    return f"{value:.4g}" if error is None else f"{value:.4g} ± {error:.2g}"
