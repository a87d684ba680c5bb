"""What became of a reading: the edits, how probable each is, and what was left undecided."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dsl.correction.reading import Reading


@dataclass(frozen=True)
class Edit:
    """A place where something else is likelier than what was read."""

    place: int
    """The first symbol of the reading that it concerns."""
    size: int
    """How many symbols it replaces; 0 where something was missing."""
    old: str
    new: str
    probability: float
    """P(new | everything that was read), before anything was decided at this place."""
    alternatives: Sequence[tuple[str, float]] = ()
    """The likeliest others, what was read among them, with their probabilities."""
    lengths: Sequence[tuple[int, float]] = ()
    """Where a change of length was weighed: by how many characters the text is longer, and how
    probable that is."""
    decided: bool = True
    """Whether the text was changed; one that was not is a doubt that is only marked."""


@dataclass(frozen=True)
class Correction:
    """A reading and what it became."""

    reading: Reading
    edits: Sequence[Edit]
    """In the order of the text; none overlaps another."""
    doubt: Sequence[float]
    """For each symbol, the probability that something else was written there; nan where nobody
    asked, because nothing was doubtful."""
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

        What replaces several characters stands where the first of them stood: there may be markup
        between them, which stays.
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
