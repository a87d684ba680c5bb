"""What a reader's confidence says of the character: P(read | written), up to a constant.

A confidence c in a character is the likelihood c of that one, and the rest is shared by all others:
alike, or as the reader is known to confuse them. Recognisers are rarely as sure as they say; a
monotone map, fitted on a small labelled sample, puts that right first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from dsl.arguments import probability
from dsl.correction.spelling import Spelling
from dsl.correction.symbol import Symbol
from dsl.correction.trust import Trust
from dsl.hints import Confident, Hint, Known, NBest, Unknown

CERTAIN = 0.9999
"""A confidence from which on a character is pinned: it never changes."""
LEAST = 1e-6
"""The least confidence that is believed: nobody is sure that a character is another one."""
AS_STATED = Trust()
"""Confidences are believed as they are."""


@dataclass(frozen=True)
class ErrorModel:
    """How a reader errs."""

    rate: float = 0.03
    """The share of wrong characters where no confidence is stated."""
    trust: Trust = AS_STATED
    confusions: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """For a character that was read, what may have been written instead, with relative weights;
    a share `spread` of the doubt is left to all other characters."""
    spread: float = 0.5

    def __post_init__(self) -> None:
        probability("rate", self.rate)
        probability("spread", self.spread)

    def hint(self, symbol: Symbol, token: int, spelling: Spelling) -> Hint:
        """Return what a symbol says of the token that was written."""
        if symbol.is_gap and not symbol.alternatives:
            return Unknown()
        sure = 1 - self.rate if symbol.confidence is None else self.trust(symbol.confidence)
        if symbol.is_gap:
            sure = 0.0
        if sure >= CERTAIN:
            return Known(token)
        others = self._alternatives(symbol, spelling)
        others.pop(token, None)
        if not others and symbol.text not in self.confusions:
            return Confident(token, max(sure, LEAST))
        return self._shared(symbol, token, max(sure, LEAST), others, spelling)

    def _alternatives(self, symbol: Symbol, spelling: Spelling) -> dict[int, float]:
        found: dict[int, float] = {}
        for text, share in symbol.alternatives:
            token = spelling.token(text) if len(text) == 1 else None
            if token is not None and share > 0:
                found[token] = max(found.get(token, 0.0), share)
        return found

    def _shared(
        self, symbol: Symbol, token: int, sure: float, others: dict[int, float], spelling: Spelling
    ) -> Hint:
        """Share what is not sure: by the reader's alternatives, by known confusions, by all."""
        left = 1 - sure
        named = math.fsum(others.values())
        if named > 0:
            part = min(left, named) * (1 - LEAST)
            return NBest({token: sure, **{t: part * p / named for t, p in others.items()}})
        known = {
            t: weight
            for text, weight in self.confusions[symbol.text].items()
            if (t := spelling.token(text)) is not None and t != token
        }
        total = math.fsum(known.values())
        part = left * (1 - self.spread) if total else 0.0
        return NBest({token: sure, **{t: part * w / total for t, w in known.items()}})
