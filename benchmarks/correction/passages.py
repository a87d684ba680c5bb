"""Held-out passages of English prose."""

from __future__ import annotations

import random
from pathlib import Path

from dsl.data import prepare

CORPUS = "english"
SIZES = range(350, 800)
"""Characters in a passage: a paragraph that fits on a page."""


def passages(n: int, *, seed: int, split: str = "test", cache: Path | None = None) -> list[str]:
    """Choose paragraphs of the corpus `english` that no bundled model has seen.

    Args:
        n: Number of passages.
        seed: Random seed.
        split: The split; use `validation` to fit.
        cache: The directory of corpora.
    """
    from dsl.data import default_cache

    text = prepare(CORPUS, cache or default_cache()).read(split).decode()
    found = [line for line in text.splitlines() if len(line) in SIZES and line.isprintable()]
    chosen = [line for line in found if line.isascii()]
    if len(chosen) < n:
        raise ValueError(
            f"n must be at most {len(chosen)}, the passages of the {split} split, got {n}"
        )
    return random.Random(f"{seed} {split}").sample(chosen, n)
