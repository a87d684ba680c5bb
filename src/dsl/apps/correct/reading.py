"""Readings and corrections: the characters of a text, and edits of it.

In every format, a reading is the content of a file and the characters read from it, with
confidences and positions. Corrections replace characters in place; the rest of the file is
unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
            raise ValueError(f"a symbol must be one character, got {self.text!r}")
        if not 0 <= self.begin <= self.end:
            raise ValueError(f"a symbol must begin before it ends, got {self.begin} … {self.end}")
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
            raise ValueError("symbols must be sorted and must not overlap")
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
                raise ValueError(
                    f"changes must be sorted and must not overlap, got {begin} after {done}"
                )
            parts += [self.source[done:begin], text]
            done = end
        return "".join([*parts, self.source[done:]])


@dataclass(frozen=True)
class Edit:
    """A proposed change of the text."""

    place: int
    """The first symbol that it replaces."""
    size: int
    """Number of symbols that it replaces; 0 for an insertion."""
    old: str
    new: str
    probability: float
    """P(new | the whole reading), before any decision at this place."""
    alternatives: Sequence[tuple[str, float]] = ()
    """The most likely alternatives, with their probabilities; may include the old text."""
    lengths: Sequence[tuple[int, float]] = ()
    """The posterior over changes of length, in characters, if it was computed."""
    decided: bool = True
    """Whether the text was changed; undecided edits are only marked."""


@dataclass(frozen=True)
class Correction:
    """A reading and its edits."""

    reading: Reading
    edits: Sequence[Edit]
    """Sorted by place, without overlaps."""
    doubt: Sequence[float]
    """For each symbol, the probability that it is wrong; nan for symbols that are not doubtful."""
    model: str

    def span(self, edit: Edit) -> tuple[int, int]:
        """Return where an edit begins and ends in the file, in characters from 0."""
        symbols = self.reading.symbols
        if edit.size:
            return symbols[edit.place].begin, symbols[edit.place + edit.size - 1].end
        if edit.place < len(symbols):
            return symbols[edit.place].begin, symbols[edit.place].begin
        end = symbols[-1].end if symbols else len(self.reading.source)
        return end, end

    @property
    def decided(self) -> list[Edit]:
        """The edits that were made."""
        return [edit for edit in self.edits if edit.decided]

    @property
    def text(self) -> str:
        """The corrected text, without markup."""
        symbols = [symbol.text or "_" for symbol in self.reading.symbols]
        parts, done = [], 0
        for edit in self.decided:
            parts += [*symbols[done : edit.place], edit.new]
            done = edit.place + edit.size
        return "".join([*parts, *symbols[done:]])

    def file(self, escape: Callable[[str], str] = str) -> str:
        """Return the corrected file; `escape` writes text as its format does.

        A replacement of several characters is written at the first of them. Markup between them is
        kept.
        """
        return self.reading.replaced(
            change for edit in self.decided for change in self._changes(edit, escape)
        )

    def _changes(self, edit: Edit, escape: Callable[[str], str]) -> Iterator[tuple[int, int, str]]:
        places = range(edit.place, edit.place + edit.size)
        own = [place for place in places if place not in self.reading.separators]
        if not own:
            yield (*self.span(edit), escape(edit.new))
        for place in own:
            symbol = self.reading.symbols[place]
            yield symbol.begin, symbol.end, escape(edit.new) if place == own[0] else ""
