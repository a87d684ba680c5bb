"""Held-out passages of English prose."""

from __future__ import annotations

import random
from pathlib import Path

from dsl.data import prepare

CORPUS = "english"
SIZES = range(350, 800)
"""Characters of a passage: a paragraph that fits on a page."""


def passages(n: int, *, seed: int, split: str = "test", cache: Path | None = None) -> list[str]:
    """Choose paragraphs of a split of the corpus `english`, which no bundled model has seen.

    Args:
        n: How many.
        seed: Which.
        split: Of which part of the corpus; what is fitted, is fitted on `validation`.
        cache: Where corpora are kept.
    """
    from dsl.data import default_cache

    text = prepare(CORPUS, cache or default_cache()).read(split).decode()
    found = [line for line in text.splitlines() if len(line) in SIZES and line.isprintable()]
    chosen = [line for line in found if line.isascii()]
    if len(chosen) < n:
        raise ValueError(f"the {split} split has {len(chosen)} such passages, {n} are wanted")
    return random.Random(f"{seed} {split}").sample(chosen, n)
