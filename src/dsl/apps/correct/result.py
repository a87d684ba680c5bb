"""Corrections: edits with their probabilities, made or left undecided."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dsl.apps.correct.reading import Reading


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
