"""Readings: the characters of a text, with confidences and positions in a file.

In every format, a reading is the content of a file and the characters read from it. Corrections
replace characters in place; the rest of the file is unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import le
from typing import overload

from dsl._util.validate import probability


@dataclass(frozen=True)
class Symbol:
    """One character of a reading."""

    text: str
    """The character; empty for a gap, an unreadable character."""
    begin: int
    """Start offset in the file, in characters from 0."""
    end: int
    """End offset: markup may spell one character with several (`&amp;`)."""
    confidence: float | None = None
    """The probability that it was read correctly; None if unknown."""
    alternatives: Sequence[tuple[str, float]] = ()
    """Other characters that the reader considered, with their probabilities."""

    def __post_init__(self) -> None:
        if len(self.text) > 1:
            raise ValueError(f"a symbol is one character, got {self.text!r}")
        if not 0 <= self.begin <= self.end:
            raise ValueError(f"a symbol begins before it ends, got {self.begin} … {self.end}")
        if self.confidence is not None:
            probability(f"the confidence of {self.text!r}", self.confidence)
        for text, share in self.alternatives:
            probability(f"the confidence of {text!r}", share)

    @property
    def is_gap(self) -> bool:
        """Whether the character was unreadable."""
        return not self.text


Alternatives = Sequence[tuple[str, float]]
UNSAID = math.nan
"""The confidence of a character without one."""


@dataclass(frozen=True)
class Characters(Sequence[Symbol]):
    """Symbols stored as columns and created on access."""

    text: str
    """One character for each symbol."""
    begins: Sequence[int]
    ends: Sequence[int]
    confidences: Sequence[float] = ()
    """nan where unknown; empty if all are unknown."""
    alternatives: Mapping[int, Alternatives] = field(default_factory=dict)
    """By place, where there are any."""
    gaps: frozenset[int] = frozenset()
    """Places of gaps."""

    def __len__(self) -> int:
        return len(self.text)

    @overload
    def __getitem__(self, place: int) -> Symbol: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Symbol]: ...
    def __getitem__(self, place: int | slice) -> Symbol | Sequence[Symbol]:
        places = range(len(self.text))[place]
        return self._symbol(places) if isinstance(places, int) else [*map(self._symbol, places)]

    def __iter__(self) -> Iterator[Symbol]:
        return map(self._symbol, range(len(self.text)))

    def _symbol(self, place: int) -> Symbol:
        confidence = self.confidences[place] if self.confidences else UNSAID
        return Symbol(
            "" if place in self.gaps else self.text[place],
            self.begins[place],
            self.ends[place],
            None if math.isnan(confidence) else confidence,
            self.alternatives.get(place, ()),
        )

    def in_order(self) -> bool:
        """Whether the symbols are sorted and do not overlap."""
        each = all(map(le, self.begins, self.ends))
        return each and all(map(le, self.ends, islice(self.begins, 1, None)))


@dataclass(frozen=True)
class Reading:
    """The content of a file, and the characters read from it."""

    source: str
    """The whole file as it is."""
    symbols: Sequence[Symbol]
    """The characters of the text in reading order, spaces and line breaks included."""
    kind: str = "plain"
    """The format: plain, inline, words, hocr or tsv."""
    separators: frozenset[int] = field(default_factory=frozenset)
    """Places of symbols that the format implies and the file does not spell, such as the space
    between two words of a list. They have no characters of their own (`begin` is `end`)."""
    scale: str = ""
    """The source of the confidences, if known: a key of `trust.MEASURED`."""

    def __post_init__(self) -> None:
        columns = self.symbols
        if not isinstance(columns, Characters):
            begins, ends = ([getattr(s, name) for s in columns] for name in ("begin", "end"))
            columns = Characters("_" * len(begins), begins, ends)
        if not columns.in_order():
            raise ValueError("symbols stand one after the other in a file, and these do not")
        if columns and columns.ends[-1] > len(self.source):
            raise ValueError(
                f"a symbol ends at {columns.ends[-1]} of {len(self.source)} characters"
            )

    @property
    def text(self) -> str:
        """The text; a gap is `_`."""
        if isinstance(self.symbols, Characters):
            return self.symbols.text
        return "".join(symbol.text or "_" for symbol in self.symbols)

    def replaced(self, changes: Iterable[tuple[int, int, str]]) -> str:
        """Write the file again with other characters in some places.

        Args:
            changes: Start, end and new text of every change, sorted and without overlaps.
        """
        parts, done = [], 0
        for begin, end, text in changes:
            if not done <= begin <= end <= len(self.source):
                raise ValueError(f"changes stand one after the other, got {begin} after {done}")
            parts += [self.source[done:begin], text]
            done = end
        return "".join([*parts, self.source[done:]])
