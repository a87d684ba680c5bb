"""A corpus that is computed: sums of two numbers, such as 12+30=42."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from dsl.data import Origin, Progress


def _sums(downloads: Path, progress: Progress) -> Iterator[bytes]:
    """Make all sums of two numbers below 100, in random order.

    Args:
        downloads: A directory for downloaded files. This corpus needs none.
        progress: A function that reports progress.
    """
    pairs = [(a, b) for a in range(100) for b in range(100)]
    random.Random(0).shuffle(pairs)
    for number, (a, b) in enumerate(pairs):
        yield f"{a}+{b}={a + b};".encode()
        if number % 1000 == 0:
            progress("adding", number, len(pairs))


SUMS = Origin(
    make=_sums,
    held_out=5_000,
    alphabet="0123456789+=;",
    source="computed",
    licence="none needed",
)
"""All sums of two numbers below 100."""
