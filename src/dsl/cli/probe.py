"""`dsl probe`: how much damage to held-out text a model puts right."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import tyro

from dsl.arguments import LENGTHS, SEEDS, within
from dsl.cli.options import parse


@dataclass(frozen=True)
class ProbeOptions:
    """Blank or garble letters and words of held-out text, and count how many are put right.

    What training reports with data.probes=repair, on text that training never asked about. Letter:
    a blanked letter, given all others. Garbled: a wrong letter in a text that was read with 90%
    confidence throughout, and how many of the right ones are kept. Word: a frequent word of 3 to 8
    letters, blanked; top 5 are the five likeliest that a beam search finds. What a model cannot be
    asked is left out.
    """

    model: tyro.conf.Positional[str]
    """A bundled model such as text8-tiny, a checkpoint directory or a hub id."""
    corpus: tyro.conf.Positional[str]
    """A corpus that `dsl data` knows, such as english, or a file."""
    split: str = "test"
    """Where the text comes from: train, validation or test."""
    limit: int = 256
    """Blocks, each with one damage of a kind; at most 128 have a blanked word."""
    length: int | None = None
    """Tokens in a block; the model's own length if not given."""
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
        within(self, limit=(2, 10**6), length=LENGTHS, seed=SEEDS)


def main(arguments: Sequence[str]) -> None:
    """Load, damage, ask, print."""
    options = parse(ProbeOptions, "probe", arguments)
    from rich.console import Console
    from rich.table import Table

    from dsl.data.cache import default_cache
    from dsl.data.corpora import prepare
    from dsl.data.windows import Windows, tokenise
    from dsl.loading import load
    from dsl.scoring.repair import damage, frequent_words, repaired

    model = load(options.model, length=options.length, device=options.device)
    length = model.length if options.length is None else options.length
    model.require_length(length)
    if model.tokenizer is None:
        raise ValueError(f"{model.name} has no tokenizer, so it cannot read {options.corpus!r}")
    corpus = prepare(options.corpus, options.cache or default_cache())
    tokens = tokenise(corpus, options.split, model.tokenizer)
    blocks = Windows(tokens, length, ends=model.ends, name=f"{options.split} split")
    words = frequent_words(corpus)
    probes = damage(blocks.spread(options.limit), model.tokenizer, words, seed=options.seed)
    found = repaired(model.denoiser, model.answers, probes)
    if not found:
        raise ValueError(
            f"{model.name} is of family {model.family.name}, which cannot be asked about a letter "
            "given those on both sides"
        )
    if options.json:
        about: dict[str, object] = {"model": model.name, "corpus": options.corpus}
        about |= {"split": options.split, "length": length, "seed": options.seed}
        print(json.dumps(about | {name: asdict(share) for name, share in found.items()}))
        return
    table = Table("put right", "share")
    for name, share in found.items():
        table.add_row(name.replace("_", " "), f"{share.mean:.3f} ± {share.stderr:.3f}")
    Console().print(table)
