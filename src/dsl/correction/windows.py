"""Windows of a long text: only where there is doubt, and none is near a seam."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MARGIN = 32
"""Characters that are seen on both sides of one that is asked about, unless the text ends."""


@dataclass(frozen=True)
class Window:
    """A stretch of a text, and the places in it that it answers."""

    begin: int
    end: int
    asked: Sequence[int]
    """Places in the text."""


def windows(doubtful: Sequence[int], size: int, length: int, margin: int) -> Iterator[Window]:
    """Cover all doubtful places, each by one window that shows what is around it.

    Args:
        doubtful: The places that are asked about, in order.
        size: Characters in the text.
        length: The most characters of a window; all have as many if the text has.
        margin: Characters around a place that is asked about.
    """
    margin = min(margin, (length - 1) // 2)
    next_one = 0
    while next_one < len(doubtful):
        end = min(size, max(0, doubtful[next_one] - margin) + length)
        begin = max(0, end - length)
        last = size if end == size else end - margin
        first = next_one
        while next_one < len(doubtful) and doubtful[next_one] < last:
            next_one += 1
        yield Window(begin, end, doubtful[first:next_one])
