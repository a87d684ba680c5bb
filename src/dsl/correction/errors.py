"""What a reader's confidence says of the character: P(read | written), up to a constant.

A confidence c in a character is the likelihood c of that one, and the rest is shared by all others:
alike, or as the reader is known to confuse them. Recognisers are rarely as sure as they say; a
monotone map, fitted on a small labelled sample, puts that right first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from dsl.arguments import probability
from dsl.correction.spelling import Spelling
from dsl.correction.symbol import Symbol
from dsl.correction.trust import AS_STATED, Trust
from dsl.denoiser import Question
from dsl.hints import Confident, Hint, Known, NBest, Unknown

CERTAIN = 0.999
"""A confidence from which on a character is pinned: it never changes."""
LEAST = 1e-6
"""The least confidence that is believed: nobody is sure that a character is another one."""


@dataclass(frozen=True)
class ErrorModel:
    """How a reader errs."""

    rate: float = 0.03
    """The share of wrong characters where no confidence is stated."""
    trust: Trust | None = None
    """What confidences mean; if not given, what was measured of this reader, or what they say."""
    confusions: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """For a character that was read, what may have been written instead, with relative weights."""
    spread: float = 0.4
    """The share of the doubt that is left to all characters: what is commonly confused need not
    hold what was written, nor need the alternatives of a reader that is not trusted."""
    asks: ClassVar[Question] = "states"
    """What a network must answer to be told all this."""

    def __post_init__(self) -> None:
        probability("rate", self.rate)
        probability("spread", self.spread)

    def hint(self, symbol: Symbol, token: int, spelling: Spelling) -> Hint:
        """Return what a symbol says of the token that was written."""
        named = _alternatives(symbol, spelling)
        if symbol.is_gap:
            return NBest(_scaled(named, 1.0)) if named else Unknown()
        stated = 1 - self.rate if symbol.confidence is None else symbol.confidence
        sure = stated if symbol.confidence is None else (self.trust or AS_STATED)(stated)
        if sure >= CERTAIN:
            return Known(token)
        sure = max(sure, LEAST)
        named.pop(token, None)
        if named and self.trust is None:  # probabilities, as they were stated
            return NBest({token: sure, **_scaled(named, 1 - sure)})
        likely = named or self._confused(symbol.text, token, spelling)
        if not likely:
            return Confident(token, sure)
        part = (1 - sure) * (1 - self.spread) / math.fsum(likely.values())
        return NBest({token: sure, **{other: part * w for other, w in likely.items()}})

    def _confused(self, text: str, token: int, spelling: Spelling) -> dict[int, float]:
        """Return what is commonly taken for a character, by weight."""
        return {
            other: weight
            for written, weight in self.confusions.get(text, {}).items()
            if (other := spelling.token(written)) is not None and other != token
        }


def _alternatives(symbol: Symbol, spelling: Spelling) -> dict[int, float]:
    """Return the tokens that the reader considered, with their probabilities."""
    found: dict[int, float] = {}
    for text, share in symbol.alternatives:
        token = spelling.token(text) if len(text) == 1 else None
        if token is not None and share > 0:
            found[token] = max(found.get(token, 0.0), share)
    return found


def _scaled(shares: Mapping[int, float], most: float) -> dict[int, float]:
    """Reduce shares, if together they have more than there is."""
    factor = min(1.0, most * (1 - LEAST) / math.fsum(shares.values()))
    return {token: share * factor for token, share in shares.items()}
