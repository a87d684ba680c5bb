"""`dsl likelihood`: score texts or a corpus with every likelihood estimator."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from dsl._util.validate import LENGTHS, SEEDS, within
from dsl._util.words import counted
from dsl.cli.options import CorpusOptions, parse

if TYPE_CHECKING:
    from dsl.checkpoints import Model
    from dsl.evaluation import Report

MOST_LINES = 40
"""Maximum number of texts listed individually in the table."""


@dataclass(frozen=True, kw_only=True)
class Options(CorpusOptions):
    """Score text with every estimator of the model, and audit how far the estimates differ.

    A sentence, or every line of a file, is scored in full and listed individually. Under torchrun
    the blocks are split across processes; the results do not change.

    Example: dsl likelihood text8-tiny "the quick brown fox"
    """

    corpus: tyro.conf.Positional[str]
    """Sentence; text file; .jsonl file with a "text" field per line, such as `dsl sample`
    writes; or corpus name (see `dsl data`), with blocks spread evenly over the split."""
    lines: bool = False
    """Score every line of a text file as a separate text. Always on if the model has no newline
    token."""
    split: str | None = None
    """Take evenly spaced blocks from this split: train, validation or test. Default: test for a
    named corpus; a file is read from its beginning."""
    limit: int | None = None
    """Maximum number of blocks. Default: 256 for a named corpus, otherwise all."""
    length: int | None = None
    """Tokens per block. Default: the model's length."""
    budget: int = 64
    """Denoiser calls per block and estimator."""
    only: tuple[str, ...] = ()
    """Use only these estimators, such as roar, shared, sequential, random-order or tabulated."""
    cutoff: float | None = None
    """Γ, the end of the contours. Default: chosen once on blocks that are not scored."""
    table: Path | None = None
    """Additional contour: JSON with "times" from 0 to 1 and "snr", a row of SNRs per time."""

    def check(self) -> None:
        """Reject invalid values."""
        within(self, limit=(1, 10**9), length=LENGTHS, cutoff=(0, 10**6), seed=SEEDS)


def main(arguments: Sequence[str]) -> None:
    """Run `dsl likelihood`."""
    options = parse(Options, "likelihood", arguments)
    from dsl._util.processes import this_process
    from dsl.checkpoints import load
    from dsl.cli.progress import progress
    from dsl.core import Tabulated
    from dsl.evaluation import score, source_of
    from dsl.likelihoods import Effort

    Effort(options.budget)  # fails early if invalid
    source = source_of(options.corpus, options.split)
    fits = len(options.corpus) if source == "sentence" else None  # an oracle of any length
    model = load(options.model, length=options.length or fits, device=options.device)
    length = model.length if options.length is None else options.length
    model.require_length(length)
    table = Tabulated.read(options.table, length) if options.table else None
    rows, owners, spare = _blocks(options, source, model, length)
    process = this_process()
    mine = list(range(len(rows)))[process.rank :: process.count]
    with progress(len(mine), "scoring", visible=process.rank == 0) as bar:
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
        entropy = floor(options) if source == "corpus" else None
        _print(options, whole, len(spare), described(options, source), entropy)


def _blocks(
    options: Options, source: str, model: Model, length: int
) -> tuple[list[Any], list[int], Any]:
    """Return the blocks, the text index of each, and spare blocks that are not scored."""
    from dsl.data import default_cache, read_texts
    from dsl.evaluation import blocks_of, read_corpus, read_file

    name, path = options.corpus, Path(options.corpus)
    by_line = options.lines or not model.can_say("\n") or path.suffix == ".jsonl"
    if source == "corpus":
        cache = options.cache or default_cache()
        scored, spare = read_corpus(model, name, options.split, length, options.limit, cache)
        return list(scored), list(range(len(scored))), spare
    if source == "file" and not by_line and not model.documents:
        scored, spare = read_file(model, path, length, options.limit)
        return list(scored), list(range(len(scored))), spare
    texts = [name]
    if source == "file":
        texts = [text for text in read_texts(path, separate_lines=by_line) if text]
        if not texts:
            raise ValueError(f"{path} contains no text")
    rows, owners = blocks_of(model, texts, length)
    rest = [row for row in rows[options.limit :] if len(row) == length] if options.limit else []
    return rows[: options.limit], owners[: options.limit], rest


def described(options: Options, source: str) -> str:
    """Say where the scored blocks come from."""
    if source == "corpus":
        return f"spread evenly over the {options.split or 'test'} split of {options.corpus}"
    return "the given text" if source == "sentence" else f"from the beginning of {options.corpus}"


def _print(
    options: Options, report: Report, spare: int, which: str, entropy: dict[str, float] | None
) -> None:
    result: dict[str, Any] = {
        "corpus": options.corpus,
        "budget": options.budget,
        "seed": options.seed,
        "blocks": which,
        **report.to_dict(),
    }
    if "cutoff" in result:
        result["cutoff_chosen_on"] = chosen_on(options, spare)
    if entropy is not None:
        result["floor"] = entropy
    texts = report.by_text()
    if len(texts) < len(report.blocks) or len(texts) <= MOST_LINES:
        result["texts"] = [line(text) for text in texts]
    print(json.dumps(result)) if options.json else show(result)


def floor(options: Options) -> dict[str, float] | None:
    """Return the entropy rate of a corpus in bits per token, if its source is known."""
    from dsl.data import default_cache, prepare

    corpus = prepare(options.corpus, options.cache or default_cache())
    known = corpus.facts.get("entropy_per_token")
    if known is None:
        return None
    mean, error = (number / math.log(2) for number in known)
    return {"bits_per_token": mean, "stderr": error}


def line(report: Report) -> dict[str, Any]:
    """Summarize one text: its beginning, and bits per token for every estimator."""
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


def chosen_on(options: Options, spare: int) -> str:
    """Describe how Γ was chosen."""
    if options.cutoff is not None:
        return "given"
    if not spare:
        return "the scored blocks"
    n = min(16, spare)
    return f"{counted(n, 'block')} that {'is' if n == 1 else 'are'} not scored"


def beginning(text: str, width: int = 48) -> str:
    """Return the beginning of a text as one table cell, with line breaks and tabs as symbols."""
    cell = text.translate({ord("\n"): "⏎", ord("\r"): "␍", ord("\t"): "⇥"})
    return cell if len(cell) <= width else f"{cell[: width - 1]}…"


def show(result: dict[str, Any]) -> None:
    """Print the results as tables."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

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
            shown = Text(beginning(text["text"]))  # brackets are not markup
            each.add_row(shown, str(text["tokens"]), f"{bits:.4f} ± {error:.4f}")
        each.columns[0].no_wrap = True
        console.print(each)
    length = "" if result["length"] is None else f" of {counted(result['length'], 'token')}"
    blocks, tokens = counted(result["sequences"], "block"), counted(result["tokens"], "token")
    scored = f"{blocks}{length}, {tokens} scored: {result['blocks']}"
    console.print(scored, soft_wrap=True, markup=False)
    if "floor" in result:
        least = result["floor"]
        console.print(
            f"the entropy of the source is {least['bits_per_token']:.4f} ± {least['stderr']:.4f} "
            "bits per token, a lower bound for every model on average"
        )
    if "audit" not in result:
        return
    found = result["audit"]
    console.print(
        f"Γ = {result['cutoff']:g}. "
        f"Audit: {' and '.join(found['between'])} differ by {found['spread']:.4f} ± "
        f"{found['stderr']:.4f} bits per token ({found['z']:.1f} standard errors)."
    )
