"""Isotonic regression by pooling adjacent violators."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Block = TypeVar("Block")


def pooled(
    blocks: Iterable[Block],
    merged: Callable[[Block, Block], Block],
    violate: Callable[[Block, Block], bool],
) -> list[Block]:
    """Merge neighbouring blocks until no two neighbours violate the order.

    Args:
        blocks: The blocks, in order.
        merged: Returns two neighbours as one.
        violate: Whether two neighbours are in the wrong order.
    """
    found: list[Block] = []
    for block in blocks:
        found.append(block)
        while len(found) > 1 and violate(found[-2], found[-1]):
            after, before = found.pop(), found.pop()
            found.append(merged(before, after))
    return found
