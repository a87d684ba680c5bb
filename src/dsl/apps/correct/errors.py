"""The error model of a reader: P(read | written), up to a constant.

A character read with confidence c has likelihood c. The other characters share 1 - c, equally or
according to known confusions. Recognisers are rarely calibrated; a monotone map fitted on a small
labelled sample corrects their confidences first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from dsl._util.validate import probability
from dsl.apps.correct.reading import Symbol
from dsl.apps.correct.spelling import Spelling
from dsl.apps.correct.trust import AS_STATED, Trust
from dsl.conditioning import Confident, Hint, Known, NBest, Unknown
from dsl.core import Continuous

LOOK_ALIKE = (
    "l1I|!i", "o0OcQ", "ceo", "ae", "rnh", "hb", "uvn", "vy", "ft", "tf", "S5s", "B8", "Z2z", "g9q",
    "G6C", "D0O", "nu", "mn", ".,", ":;", "'`\"", "-_", "ij", "xX", "kK", "wW", "pP", "MN", "EF",
    "VY", "UV", "PR", "TI", "yv", "da", "bh", "1l", "7T",
)  # fmt: skip
"""Groups of characters that recognisers confuse."""
ROWS = ("1234567890-", "qwertyuiop[", "asdfghjkl;'", "zxcvbnm,./")
"""The keys of an English keyboard, each row half a key to the right of the one above."""

Confusions = Mapping[str, Mapping[str, float]]


def recogniser() -> Confusions:
    """Return the characters that a recogniser confuses with each character it reads."""
    found: dict[str, dict[str, float]] = {}
    for group in LOOK_ALIKE:
        for read in group:
            for written in group:
                if written != read:
                    row = found.setdefault(read, {})
                    row[written] = row.get(written, 0.0) + 1.0
    return found


def keyboard() -> Confusions:
    """Return the neighbouring keys of every key, in the same case."""
    places = {key: (x + y / 2, y) for y, row in enumerate(ROWS) for x, key in enumerate(row)}
    found: dict[str, dict[str, float]] = {}
    for pressed, (x, y) in places.items():
        near = {
            key: 1.0
            for key, (u, v) in places.items()
            if key != pressed and abs(u - x) <= 1 and abs(v - y) <= 1
        }
        found[pressed] = near
        if pressed.isalpha():
            found[pressed.upper()] = {key.upper(): 1.0 for key in near if key.isalpha()}
    return found


NAMED = {"ocr": recogniser, "keyboard": keyboard}


CERTAIN = 0.999
"""Characters with at least this confidence are pinned: they never change."""
LEAST = 1e-6
"""Lower bound on confidences."""


@dataclass(frozen=True)
class ErrorModel:
    """The error model of a reader."""

    rate: float = 0.03
    """The error rate of characters without a confidence."""
    trust: Trust | None = None
    """Calibration of confidences; the default is the measured one of this reader, if any."""
    confusions: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """For every character read, the characters it may stand for, with relative weights."""
    spread: float = 0.4
    """The share of the doubt that is spread over all characters, because the true character may be
    missing from the confusions and from the alternatives of an uncalibrated reader."""
    asks: ClassVar[type] = Continuous
    """The protocol that a network must implement."""

    def __post_init__(self) -> None:
        probability("rate", self.rate)
        probability("spread", self.spread)

    def hint(self, symbol: Symbol, token: int, spelling: Spelling) -> Hint:
        """Return the evidence of a symbol for its token."""
        named = _alternatives(symbol, spelling)
        if symbol.is_gap:
            return NBest(_scaled(named, 1.0)) if named else Unknown()
        stated = 1 - self.rate if symbol.confidence is None else symbol.confidence
        sure = stated if symbol.confidence is None else (self.trust or AS_STATED)(stated)
        if sure >= CERTAIN:
            return Known(token)
        sure = max(sure, LEAST)
        named.pop(token, None)
        if named and self.trust is None:  # use the stated probabilities
            return NBest({token: sure, **_scaled(named, 1 - sure)})
        likely = named or self._confused(symbol.text, token, spelling)
        if not likely:
            return Confident(token, sure)
        part = (1 - sure) * (1 - self.spread) / math.fsum(likely.values())
        return NBest({token: sure, **{other: part * w for other, w in likely.items()}})

    def _confused(self, text: str, token: int, spelling: Spelling) -> dict[int, float]:
        """Return the tokens confused with a character, with their weights."""
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
    """Scale shares down if their sum exceeds the available mass."""
    factor = min(1.0, most * (1 - LEAST) / math.fsum(shares.values()))
    return {token: share * factor for token, share in shares.items()}
