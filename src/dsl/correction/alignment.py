"""Align what was read with what was written: the fewest changes, and where they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

LONGEST = 20_000
"""Characters of a text that is aligned at once: its table has that many squared bytes at most."""


@dataclass(frozen=True)
class Step:
    """A character of each side, or of one only."""

    read: int | None
    """The place in what was read; None if a character was lost."""
    written: int | None
    """The place in what was written; None if one was added."""


def align(read: Sequence[Any], written: Sequence[Any]) -> list[Step]:
    """Return an alignment with the fewest changes, from the beginning on.

    Args:
        read: Characters, or words.
        written: Likewise.
    """
    if max(len(read), len(written)) > LONGEST:
        raise ValueError(
            f"texts of at most {LONGEST:,} characters are aligned at once, "
            f"got {len(read):,} and {len(written):,}: align them page by page"
        )
    symbols = {symbol: number for number, symbol in enumerate({*read, *written})}
    one, other = (np.array([symbols[s] for s in side], dtype=np.int64) for side in (read, written))
    moves = np.zeros((len(one) + 1, len(other) + 1), dtype=np.uint8)
    moves[0, 1:], moves[1:, 0] = LOST, ADDED
    places = np.arange(len(other) + 1)
    row = places.astype(np.int64)
    for i, symbol in enumerate(one):
        across = row[:-1] + (other != symbol)
        added = row + 1
        best = np.concatenate([added[:1], np.minimum(across, added[1:])])
        # a lost character costs one more than the place before: a running minimum does them all
        following = np.minimum.accumulate(best - places) + places
        moves[i + 1, 1:] = np.where(across == following[1:], BOTH, LOST)
        moves[i + 1, 1:][(added[1:] == following[1:]) & (across != following[1:])] = ADDED
        row = following
    return list(_back(moves))[::-1]


BOTH, LOST, ADDED = 0, 1, 2


def _back(moves: np.ndarray) -> Iterator[Step]:
    """Walk back through the table of moves."""
    i, j = moves.shape[0] - 1, moves.shape[1] - 1
    while i or j:
        move = int(moves[i, j])
        i, j = i - (move != LOST), j - (move != ADDED)
        yield Step(None if move == LOST else i, None if move == ADDED else j)


def distance(read: Sequence[Any], written: Sequence[Any]) -> int:
    """Count the fewest changes that make one of the other."""
    return sum(
        step.read is None or step.written is None or read[step.read] != written[step.written]
        for step in align(read, written)
    )
