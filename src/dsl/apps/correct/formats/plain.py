"""Plain text, without confidences."""

from __future__ import annotations

from dsl.apps.correct.formats import Format
from dsl.apps.correct.reading import Characters, Reading

NAME = "plain"
SUFFIXES = frozenset({".txt", ".text", ".md"})
MARK = "\ufeff"
"""Byte order mark; not part of the text."""


def read(source: str, gap: str | None = None) -> Reading:
    """Read text.

    Args:
        source: The text.
        gap: The character that marks a gap, if any.
    """
    if gap is not None and len(gap) != 1:
        raise ValueError(f"gap must be one character, got {gap!r}")
    skipped = len(MARK) if source.startswith(MARK) else 0
    text = source[skipped:]
    begins = range(skipped, len(source))
    ends = range(skipped + 1, len(source) + 1)
    gaps = frozenset(i for i, c in enumerate(text) if c == gap) if gap else frozenset[int]()
    return Reading(source, Characters(text, begins, ends, gaps=gaps), NAME)


def escape(text: str) -> str:
    """Return the text unchanged."""
    return text


def recognise(source: str, suffix: str) -> bool:
    """Whether the suffix is that of a text file; plain text is also the fallback."""
    return suffix in SUFFIXES


FORMAT = Format(NAME, "text without confidences", read, escape, recognise, -100)
