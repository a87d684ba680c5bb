"""`dsl evaluate repair`: damage held-out text, and measure how much of it a model restores."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from dsl._util.validate import LENGTHS, SEEDS, within
from dsl.cli.options import CorpusOptions, parse


@dataclass(frozen=True, kw_only=True)
class Options(CorpusOptions):
    """Blank or garble letters and words of held-out text, and count how many are restored.

    The same probes as in training with data.probes=repair. Letter: a blanked letter, given all
    others. Garbled: a wrong letter in a text that was read with 90% confidence throughout, and the
    share of right letters that are kept. Word: a blanked frequent word of 3 to 8 letters; top 5
    are the five most probable words of a beam search. Probes that a model does not support are
    omitted.

    Example: dsl evaluate repair english-tiny english
    """

    split: str = "test"
    """Split: train, validation or test."""
    limit: int = 256
    """Number of blocks, each with one damage per kind; at most 128 have a blanked word."""
    length: int | None = None
    """Tokens per block. Default: the model's length."""

    def check(self) -> None:
        """Reject invalid values."""
        within(self, limit=(2, 10**6), length=LENGTHS, seed=SEEDS)


def main(arguments: Sequence[str]) -> None:
    """Run `dsl evaluate repair`."""
    options = parse(Options, "evaluate repair", arguments)
    from rich.console import Console
    from rich.table import Table

    from dsl.checkpoints import load
    from dsl.data import Windows, default_cache, prepare, tokenise
    from dsl.evaluation import damage, frequent_words, repaired

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
    found = repaired(model.denoiser, model.protocol, probes)
    if not found:
        raise ValueError(
            f"{model.name} is of family {model.family.name}, which cannot predict a letter from "
            "both sides"
        )
    if options.json:
        about: dict[str, object] = {"model": model.name, "corpus": options.corpus}
        about |= {"split": options.split, "length": length, "seed": options.seed}
        print(json.dumps(about | {name: asdict(share) for name, share in found.items()}))
        return
    table = Table("restored", "share")
    for name, share in found.items():
        table.add_row(name.replace("_", " "), f"{share.mean:.3f} ± {share.stderr:.3f}")
    Console().print(table)
