"""A reading as a model sees it: a token and a hint for every place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dsl.correction.errors import ErrorModel
from dsl.correction.reading import Reading
from dsl.correction.spelling import Shown, Spelling
from dsl.correction.symbol import Symbol
from dsl.hints import Hint, Known
from dsl.loading import Model

SECTION = 20_000
"""Symbols that are worked on at a time, whatever the length of the text."""


@dataclass(frozen=True)
class Section:
    """A part of a text that is worked on, and what is seen of its neighbours."""

    seen: range
    own: range


def sections(symbols: Sequence[Symbol], margin: int, size: int = SECTION) -> Iterator[Section]:
    """Cut a text into sections, between two words where there is a space near.

    Args:
        symbols: The whole text.
        margin: Symbols of the neighbours that are seen.
        size: The most symbols of a section.
    """
    begin, total = 0, len(symbols)
    while begin < total:
        end = min(total, begin + size)
        if end < total:
            spaces = (i for i in range(end, max(begin, end - margin), -1) if _is_space(symbols[i]))
            end = next(spaces, end)
        seen = range(max(0, begin - margin), min(total, end + margin))
        yield Section(seen, range(begin, end))
        begin = end


def _is_space(symbol: Symbol) -> bool:
    return symbol.text.isspace()


@dataclass(frozen=True, eq=False)
class View:
    """The places of a text in a model's alphabet. Several spaces are one place."""

    reading: Reading
    model: Model
    spelling: Spelling
    shown: Sequence[Shown]
    hints: Sequence[Hint]
    """What is known of each place; what the alphabet cannot say is pinned to what comes nearest."""

    @classmethod
    def of(
        cls, reading: Reading, model: Model, errors: ErrorModel, section: Section | None = None
    ) -> View:
        """Spell a reading, or a section of it, with the tokens of a model."""
        if errors.asks not in model.answers or model.documents:
            raise ValueError(
                f"{model.name} cannot correct text: a DSL model of running characters is needed"
            )
        spelling = Spelling(model)
        whole = range(len(reading.symbols))
        section = section or Section(whole, whole)
        shown = spelling.shown(reading.symbols, section.seen)
        hints: list[Hint] = [
            Known(one.token)
            if one.fixed or one.symbol in reading.separators or one.symbol not in section.own
            else errors.hint(reading.symbols[one.symbol], one.token, spelling)
            for one in shown
        ]
        return cls(reading, model, spelling, shown, hints)

    @property
    def tokens(self) -> list[int]:
        """What was read."""
        return [one.token for one in self.shown]

    @property
    def fixed(self) -> list[bool]:
        """Which places never change."""
        return [isinstance(hint, Known) for hint in self.hints]

    def symbol(self, place: int) -> Symbol:
        """Return the symbol of a place."""
        return self.reading.symbols[self.shown[place].symbol]
