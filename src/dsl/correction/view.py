"""A reading as a model sees it: a token and a hint for every place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dsl.correction.errors import ErrorModel
from dsl.correction.reading import Reading, Symbol
from dsl.correction.spelling import Shown, Spelling
from dsl.hints import Hint, Known
from dsl.loading import Model


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
    def of(cls, reading: Reading, model: Model, errors: ErrorModel) -> View:
        """Spell a reading with the tokens of a model."""
        if "states" not in model.family.answers or model.documents:
            raise ValueError(
                f"{model.name} cannot correct text: a DSL model of running characters is needed"
            )
        spelling = Spelling(model)
        shown = spelling.shown(reading.symbols)
        hints: list[Hint] = [
            Known(one.token)
            if one.fixed or one.symbol in reading.separators
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
