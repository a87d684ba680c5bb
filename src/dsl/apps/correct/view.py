"""A reading as a model sees it: a token and a hint for every place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dsl.apps.correct.errors import ErrorModel
from dsl.apps.correct.reading import Reading, Symbol
from dsl.apps.correct.spelling import Shown, Spelling
from dsl.checkpoints import Model
from dsl.conditioning import Hint, Known

MARGIN = 32
"""Context on both sides of a doubtful character, in characters."""


@dataclass(frozen=True)
class Window:
    """A stretch of text, and the doubtful places that it covers."""

    begin: int
    end: int
    asked: Sequence[int]
    """Places in the text."""


def windows(doubtful: Sequence[int], size: int, length: int, margin: int) -> Iterator[Window]:
    """Cover every doubtful place by one window with enough context.

    Args:
        doubtful: The doubtful places, sorted.
        size: Characters in the text.
        length: The length of a window, unless the text is shorter.
        margin: Minimum context around a doubtful place.
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


@dataclass(frozen=True)
class Section:
    """A part of a text (`own`), and the same with context (`seen`)."""

    seen: range
    own: range


def sections(symbols: Sequence[Symbol], margin: int, size: int) -> Iterator[Section]:
    """Cut a text into sections, at a space if one is near.

    Args:
        symbols: The whole text.
        margin: Context on both sides, in symbols.
        size: Maximum symbols per section.
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
    """Evidence for each place; characters outside the alphabet are pinned to the nearest token."""
    fixed: Sequence[bool]
    """Which places never change: those that are certain, and those of other sections."""

    @classmethod
    def of(
        cls, reading: Reading, model: Model, errors: ErrorModel, section: Section | None = None
    ) -> View:
        """Spell a reading, or a section of it, with the tokens of a model."""
        if not model.can_answer(errors.asks) or model.documents:
            raise ValueError(
                f"{model.name} cannot correct text: a DSL model of running characters is needed"
            )
        spelling = Spelling(model)
        whole = range(len(reading.symbols))
        section = section or Section(whole, whole)
        shown = spelling.shown(reading.symbols, section.seen)
        hints: list[Hint] = [
            Known(one.token)
            if one.fixed or one.symbol in reading.separators
            else errors.hint(reading.symbols[one.symbol], one.token, spelling)
            for one in shown
        ]
        fixed = [
            isinstance(hint, Known) or one.symbol not in section.own
            for hint, one in zip(hints, shown, strict=True)
        ]
        return cls(reading, model, spelling, shown, hints, fixed)

    @property
    def tokens(self) -> list[int]:
        """The tokens as read."""
        return [one.token for one in self.shown]

    def symbol(self, place: int) -> Symbol:
        """Return the symbol of a place."""
        return self.reading.symbols[self.shown[place].symbol]
