"""How the characters of a text are written with the tokens of a model, and back.

A model knows an alphabet. Characters outside it, line breaks and spacing are shown to it as what
comes nearest, so that it sees the sentence; they themselves never change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from dsl.apps.correct.reading import Symbol
from dsl.checkpoints import Model
from dsl.data import OTHER, fold

BREAK = "\n"


@dataclass(frozen=True)
class Shown:
    """A token of the model's view of a text, and the symbol it stands for."""

    token: int
    """What the model is shown; of a gap, any, since nobody looks at it."""
    symbol: int
    """The place of the symbol; of several spaces, the first. What stands before and after the
    whole text belongs to none: -1, and the number of symbols."""
    fixed: bool
    """Whether it never changes, because the alphabet cannot say what it stands for."""


class Spelling:
    """The alphabet of a model, and what is shown for characters it lacks."""

    def __init__(self, model: Model) -> None:
        """Read the alphabet; a model of pieces longer than characters is refused."""
        specials = model.specials
        letters = {
            token: "" if token in specials else model.decode([token])
            for token in range(model.vocab_size)
        }
        if long := [text for text in letters.values() if len(text) > 1]:
            raise ValueError(
                f"text is corrected character by character; {model.name} has tokens such as "
                f"{long[0]!r}"
            )
        self.letters: dict[int, str] = letters
        self.tokens = {text: token for token, text in letters.items() if text}
        self.name = model.name

    def token(self, text: str) -> int | None:
        """Return the token of a character as it is, or in small letters; None if there is none."""
        return self.tokens.get(text, self.tokens.get(text.lower()))

    def written(self, token: int, old: str) -> str:
        """Return the character of a token, in capitals if the old one had to be made small."""
        text = self.letters[token]
        smaller = old not in self.tokens and old.lower() in self.tokens
        return text.upper() if smaller else text

    def shown(self, symbols: Sequence[Symbol], part: range) -> list[Shown]:
        """Return the model's view of a part of a text; spacing is one space, a blank line a break.

        Before and after the whole text stands a break, so that the model knows where it begins and
        ends.
        """
        edge = self.tokens.get(BREAK, self.tokens.get(" "))
        view: list[Shown] = []
        if edge is not None and part.start == 0:
            view.append(Shown(edge, -1, fixed=True))
        numbered = zip(part, symbols[part.start : part.stop], strict=True)
        for blank, group in groupby(numbered, key=lambda pair: pair[1].text.isspace()):
            run = list(group)
            view += [self._spacing(run)] if blank else [self._character(i, s) for i, s in run]
        if edge is not None and part.stop == len(symbols):
            view.append(Shown(edge, part.stop, fixed=True))
        return view

    def _spacing(self, run: Sequence[tuple[int, Symbol]]) -> Shown:
        text = "".join(symbol.text for _, symbol in run)
        parts = text.count(BREAK) > 1 and BREAK in self.tokens
        return Shown(self._blank(BREAK if parts else " "), run[0][0], fixed=text != " ")

    def _character(self, place: int, symbol: Symbol) -> Shown:
        if symbol.is_gap:
            return Shown(0, place, fixed=False)
        token = self.token(symbol.text)
        if token is not None:
            return Shown(token, place, fixed=False)
        folded = fold(symbol.text)
        near = self.token(folded) if len(folded) == 1 else self.tokens.get(OTHER)
        return Shown(self._blank(" ") if near is None else near, place, fixed=True)

    def _blank(self, text: str) -> int:
        if text not in self.tokens:
            raise ValueError(f"{self.name} does not know {text!r}, so it cannot read this text")
        return self.tokens[text]
