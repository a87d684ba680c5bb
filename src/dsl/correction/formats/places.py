"""Places in a file, as people count them: lines and columns from 1."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def places(source: str, offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Give the line and the column of characters, in order: one pass for however many."""
    line, begin, done = 1, 0, 0
    for offset in offsets:
        assert offset >= done, "offsets come in order"
        line += source.count("\n", done, offset)
        begin = max(begin, source.rfind("\n", done, offset) + 1)
        done = offset
        yield line, offset - begin + 1


def place(source: str, offset: int) -> str:
    """Name the place of one character."""
    line, column = next(places(source, [offset]))
    return f"line {line}, column {column}"


def shown(text: str) -> str:
    """Quote something for a message: one line of moderate length."""
    return repr(text if len(text) <= 40 else f"{text[:40]}…")
