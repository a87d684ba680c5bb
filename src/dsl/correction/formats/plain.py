"""Plain text: every character was read, and nobody says how surely."""

from __future__ import annotations

from dsl.correction.characters import Characters
from dsl.correction.reading import Reading

NAME = "plain"
SUFFIXES = frozenset({".txt", ".text", ".md"})
MARK = "\ufeff"
"""What some programs begin a file with; it says something of the bytes, and is no text."""


def read(source: str, gap: str | None = None) -> Reading:
    """Read text.

    Args:
        source: The text.
        gap: The character that stands for one that could not be made out, if there is one.
    """
    if gap is not None and len(gap) != 1:
        raise ValueError(f"a gap is marked by one character, got {gap!r}")
    skipped = len(MARK) if source.startswith(MARK) else 0
    text = source[skipped:]
    begins = range(skipped, len(source))
    ends = range(skipped + 1, len(source) + 1)
    gaps = frozenset(i for i, c in enumerate(text) if c == gap) if gap else frozenset[int]()
    return Reading(source, Characters(text, begins, ends, gaps=gaps), NAME)


def escape(text: str) -> str:
    """Write text as it is."""
    return text


def recognise(source: str, suffix: str) -> bool:
    """Whether a file's name says that it is text; whatever is nothing else is text, too."""
    return suffix in SUFFIXES
