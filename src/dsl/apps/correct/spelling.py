"""Conversion between the characters of a text and the tokens of a model.

Characters outside the model's alphabet, line breaks and spacing are shown to the model as the
nearest token, so that it sees the sentence. They never change.
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
    """A token that the model sees, and the symbol it stands for."""

    token: int
    """The token; arbitrary for a gap."""
    symbol: int
    """The place of the symbol; for several spaces, of the first. -1 before the text, and the number
    of symbols after it."""
    fixed: bool
    """Whether it never changes, because the symbol is outside the alphabet."""


class Spelling:
    """The alphabet of a model, and tokens for characters outside it."""

    def __init__(self, model: Model) -> None:
        """Read the alphabet of a character-level model."""
        specials = model.specials
        letters = {
            token: "" if token in specials else model.decode([token])
            for token in range(model.vocab_size)
        }
        if long := [text for text in letters.values() if len(text) > 1]:
            raise ValueError(
                f"correction needs a character-level model; {model.name} has tokens such as "
                f"{long[0]!r}"
            )
        self.letters: dict[int, str] = letters
        self.tokens = {text: token for token, text in letters.items() if text}
        self.name = model.name

    def token(self, text: str) -> int | None:
        """Return the token of a character, or of its lower case; None if there is none."""
        return self.tokens.get(text, self.tokens.get(text.lower()))

    def written(self, token: int, old: str) -> str:
        """Return the character of a token, in upper case if the old one had to be lowered."""
        text = self.letters[token]
        smaller = old not in self.tokens and old.lower() in self.tokens
        return text.upper() if smaller else text

    def shown(self, symbols: Sequence[Symbol], part: range) -> list[Shown]:
        """Return the tokens of a part of a text; spacing is one space, a blank line a break.

        The whole text is between two breaks, so that the model sees where it begins and ends.
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
            raise ValueError(f"{self.name} cannot read this text: it has no token for {text!r}")
        return self.tokens[text]
