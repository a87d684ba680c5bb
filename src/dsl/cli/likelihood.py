"""`dsl likelihood`: score texts or a corpus with every estimator, each with its standard error."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from dsl.arguments import LENGTHS, SEEDS, within
from dsl.cli.options import parse

if TYPE_CHECKING:
    from dsl.loading import Model
    from dsl.scoring.report import Report

MOST_LINES = 40
"""Texts that get a line of their own in the table."""


@dataclass(frozen=True)
class LikelihoodOptions:
    """Score text by every estimator that the model has, and audit how far they lie apart.

    A sentence, and every line of a file, is scored to its end and gets a line of its own. Under
    torchrun the blocks are shared by the processes; the numbers do not change.
    """

    model: tyro.conf.Positional[str]
    """A bundled model such as text8-tiny, a checkpoint directory, a hub id, or an oracle."""
    corpus: tyro.conf.Positional[str]
    """A sentence; a text file; a .jsonl file with a "text" in every line, such as `dsl sample`
    writes; or a corpus that `dsl data` knows, of which blocks are spread evenly over the split."""
    lines: bool = False
    """Take every line of a text file as a text of its own. Always so if the model has no token
    for the end of a line."""
    split: str | None = None
    """Take blocks at equal distances from this split: train, validation or test. If it is not
    given, that is test for a named corpus, while a file is read from its beginning."""
    limit: int | None = None
    """Score at most so many blocks; 256 of a named corpus if not given."""
    length: int | None = None
    """Tokens in a block; the model's own length if not given."""
    budget: int = 64
    """Denoiser calls for each block and estimator."""
    only: tuple[str, ...] = ()
    """Use only these estimators, such as roar, shared, sequential, random-order or tabulated."""
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
        within(self, limit=(1, 10**9), length=LENGTHS, cutoff=(0, 10**6), seed=SEEDS)


def main(arguments: Sequence[str]) -> None:
    """Load, cut, score, print."""
    options = parse(LikelihoodOptions, "likelihood", arguments)
    from dsl.cli.progress import progress
    from dsl.likelihoods.effort import Effort
    from dsl.loading import load
    from dsl.path import Tabulated
    from dsl.processes import this_process
    from dsl.scoring.score import score

    model = load(options.model, length=_length(options), device=options.device)
    length = model.length if options.length is None else options.length
    model.require_length(length)
    table = Tabulated.read(options.table, length) if options.table else None
    effort = Effort(options.budget, table=table)  # what is wrong with it is said before any work
    rows, owners, spare = _blocks(options, model, length)
    process = this_process()
    mine = list(range(len(rows)))[process.rank :: process.count]
    used = len(options.only or model.family.estimators(model.denoiser, effort))
    with progress(len(mine) * used, "scoring", visible=process.rank == 0) as bar:
        report = score(
            model,
            [rows[i] for i in mine],
            indices=mine,
            texts=[owners[i] for i in mine],
            budget=options.budget,
            cutoff=options.cutoff,
            validation=list(spare) if len(spare) else rows,
            table=table,
            seed=options.seed,
            only=options.only or None,
            on_progress=bar.advance,
        )
    whole = report.joined(process.gather(list(zip(mine, report.blocks, strict=True))))
    if process.rank == 0:
        _print(options, whole, len(spare))


def _length(options: LikelihoodOptions) -> int | None:
    """Size an oracle that can have any length: as the user says, or as a sentence needs."""
    from dsl.scoring.blocks import is_sentence

    if options.length is None and is_sentence(options.corpus, options.split):
        return len(options.corpus)
    return options.length


def _blocks(
    options: LikelihoodOptions, model: Model, length: int
) -> tuple[list[Any], list[int], Any]:
    """Return blocks, the text each belongs to, and blocks that are not scored."""
    from dsl.data.blocks import read_texts
    from dsl.data.cache import default_cache
    from dsl.scoring.blocks import is_corpus, is_sentence, read
    from dsl.scoring.texts import blocks_of

    name, path = options.corpus, Path(options.corpus)
    by_line = options.lines or not model.can_say("\n") or path.suffix == ".jsonl"
    if is_sentence(name, options.split):
        texts = [name]
    elif not is_corpus(name, options.split) and (by_line or model.documents):
        texts = [text for text in read_texts(path, separate_lines=by_line) if text]
        if not texts:
            raise ValueError(f"{path} has no text")
    else:
        cache = options.cache or default_cache()
        scored, spare = read(model, name, options.split, length, options.limit, cache)
        return list(scored), list(range(len(scored))), spare
    rows, owners = blocks_of(model, texts, length)
    rest = [row for row in rows[options.limit :] if len(row) == length] if options.limit else []
    return rows[: options.limit], owners[: options.limit], rest


def _print(options: LikelihoodOptions, report: Report, spare: int) -> None:
    result: dict[str, Any] = {
        "corpus": options.corpus,
        "budget": options.budget,
        "seed": options.seed,
        **report.to_dict(),
    }
    if "cutoff" in result:
        result["cutoff_chosen_on"] = chosen_on(options, spare)
    if (entropy := floor(options)) is not None:
        result["floor"] = entropy
    texts = report.by_text()
    if len(texts) < len(report.blocks) or len(texts) <= MOST_LINES:
        result["texts"] = [line(text) for text in texts]
    print(json.dumps(result)) if options.json else show(result)


def floor(options: LikelihoodOptions) -> dict[str, float] | None:
    """Return the entropy of a corpus whose source is known, in bits per token."""
    from dsl.data.cache import default_cache
    from dsl.data.corpora import prepare
    from dsl.scoring.blocks import is_corpus, is_sentence

    name, split = options.corpus, options.split
    if is_sentence(name, split) or not is_corpus(name, split):
        return None
    known = prepare(name, options.cache or default_cache()).facts.get("entropy_per_token")
    if known is None:
        return None
    mean, error = (number / math.log(2) for number in known)
    return {"bits_per_token": mean, "stderr": error}


def line(report: Report) -> dict[str, Any]:
    """Sum up one text: its beginning, and bits per token by every estimator."""
    ids = [token for block in report.blocks for token in block.tokens.tolist()]
    words = report.model.decode([t for t in ids if t not in report.model.specials])
    bits = {name: report.bits_per_token(name) for name in report.kinds}
    record: dict[str, Any] = {
        "text": words,
        "tokens": report.scored,
        "bits_per_token": {name: mean.mean for name, mean in bits.items()},
        "stderr": {name: mean.stderr for name, mean in bits.items()},
    }
    if report.model.documents:
        whole = {name: report.bits_per_document(name).mean for name in report.kinds}
        record["bits_per_document"] = whole
    return record


def chosen_on(options: LikelihoodOptions, spare: int) -> str:
    """Say where Γ comes from."""
    if options.cutoff is not None:
        return "given"
    return f"{min(16, spare)} blocks that are not scored" if spare else "the scored blocks"


def show(result: dict[str, Any]) -> None:
    """Print the numbers as tables."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    console = Console()
    rows = {
        n.replace("_", " "): s for n, s in result.items() if isinstance(s, dict) and "kind" in s
    }
    rows |= result.get("path_integral", {})
    columns = {"bits_per_token": "stderr", "bits_per_character": "bits_per_character_stderr"}
    if any("bits_per_document" in row for row in rows.values()):
        columns["bits_per_document"] = "bits_per_document_stderr"
    names = [name.replace("_", " ") for name in columns]
    table = Table("estimator", "what", *names, box=SIMPLE_HEAD)
    for name, row in rows.items():
        cells = [
            f"{row[n]:.4f} ± {row[error]:.4f}" if n in row else "" for n, error in columns.items()
        ]
        table.add_row(name, row["kind"], *cells)
    console.print(table)
    texts = result.get("texts", [])
    if 1 < len(texts) <= MOST_LINES:
        first = next(iter(rows))
        label = first.replace(" ", "-")
        each = Table("text", "tokens", f"bits per token, {first}", box=SIMPLE_HEAD)
        for text in texts:
            bits, error = text["bits_per_token"][label], text["stderr"][label]
            shown = text["text"] if len(text["text"]) <= 48 else f"{text['text'][:47]}…"
            each.add_row(shown, str(text["tokens"]), f"{bits:.4f} ± {error:.4f}")
        console.print(each)
    length = "" if result["length"] is None else f" of {result['length']} tokens"
    console.print(f"{result['sequences']} blocks{length}, {result['tokens']} tokens scored")
    if "floor" in result:
        least = result["floor"]
        console.print(
            f"the entropy of the source is {least['bits_per_token']:.4f} ± {least['stderr']:.4f} "
            "bits per token; no model has fewer on average"
        )
    if "audit" not in result:
        return
    found = result["audit"]
    console.print(
        f"Γ = {result['cutoff']:g}. "
        f"Audit: {' and '.join(found['between'])} differ by {found['spread']:.4f} ± "
        f"{found['stderr']:.4f} bits per token ({found['z']:.1f} standard errors)."
    )
