"""Methods: no correction, two spell checkers, a masked model, DSL without and with confidences.

Every method has one hyper-parameter, tuned on validation texts: the confidence above which a word
or a character is kept, or the assumed error rate.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files as packaged
from typing import Any, ClassVar, Protocol, runtime_checkable

from dsl._util.extras import require
from dsl.apps.correct.corrector import Policy, correct
from dsl.apps.correct.deciding import Mode
from dsl.apps.correct.errors import ErrorModel, keyboard
from dsl.apps.correct.formats import plain
from dsl.apps.correct.lengths import LengthErrors
from dsl.apps.correct.reading import Correction, Reading, Symbol
from dsl.apps.correct.spelling import Spelling
from dsl.apps.correct.trust import AS_STATED, Trust
from dsl.checkpoints import Model
from dsl.conditioning import Hint, Known, Unknown
from dsl.core import Denoiser

EXTRA = "correction-bench"
SURE = (0.85, 0.9, 0.95, 0.98, 0.99, 2.0)
"""Confidences below which a word may change; 2 allows any word."""
RATES = (0.003, 0.01, 0.03, 0.08)


@runtime_checkable
class Rival(Protocol):
    """A method of correction."""

    @property
    def name(self) -> str:
        """The name in the table."""
        ...

    @property
    def settings(self) -> Sequence[float]:
        """The values of its hyper-parameter that are tried on validation texts."""
        ...

    def __call__(self, reading: Reading, setting: float) -> str | Correction:
        """Return the corrected text, or a correction with probabilities."""
        ...


@dataclass(frozen=True)
class Nobody:
    """Leave the text as it is."""

    name: str = "no correction"
    settings: Sequence[float] = (0.0,)

    def __call__(self, reading: Reading, setting: float) -> str:
        """Return the text as read."""
        return reading.text


@dataclass(frozen=True)
class SpellChecker:
    """Replace words outside a dictionary by the most likely similar ones."""

    name: str
    look_up: Callable[[str], str | None]
    """Return the best word for a word in lower case, or None."""
    heeds: bool = False
    """Whether only words with a low confidence may change."""

    @property
    def settings(self) -> Sequence[float]:
        """Confidences below which a word is looked up."""
        return SURE[:-1] if self.heeds else SURE[-1:]

    def __call__(self, reading: Reading, setting: float) -> str:
        """Look up every word with a character of a confidence below the setting."""
        text, done, parts = reading.text, 0, []
        for begin, end in _words(text):
            sure = min((_confidence(reading.symbols[i]) for i in range(begin, end)), default=1.0)
            if not self.heeds or sure < setting:
                parts += [text[done:begin], self._corrected(text[begin:end])]
                done = end
        return "".join([*parts, text[done:]])

    def _corrected(self, word: str) -> str:
        core = word.strip(string.punctuation)
        if not core.isalpha() or core[1:] != core[1:].lower():
            return word
        found = self.look_up(core.lower())
        if found is None:
            return word
        return word.replace(core, found.capitalize() if core[0].isupper() else found)


def _words(text: str) -> list[tuple[int, int]]:
    places, begin = [], 0
    for part in text.split():
        begin = text.index(part, begin)
        places.append((begin, begin + len(part)))
        begin += len(part)
    return places


def _confidence(symbol: Symbol) -> float:
    return 1.0 if symbol.confidence is None else symbol.confidence


@cache
def symspell() -> Callable[[str], str | None]:
    """Return SymSpell's look-up, with its bundled dictionary."""
    module: Any = require("symspellpy", extra=EXTRA)
    checker = module.SymSpell(max_dictionary_edit_distance=2)
    words = packaged("symspellpy").joinpath("frequency_dictionary_en_82_765.txt")
    checker.load_dictionary(str(words), 0, 1)

    def look_up(word: str) -> str | None:
        found = checker.lookup(word, module.Verbosity.TOP, max_edit_distance=2)
        return found[0].term if found else None

    return look_up


@cache
def pyspellchecker() -> Callable[[str], str | None]:
    """Return pyspellchecker's correction at distance 1; distance 2 takes seconds per word."""
    checker = require("spellchecker", extra=EXTRA).SpellChecker(distance=1)
    return cache(checker.correction)


@dataclass(frozen=True)
class Refilling(ErrorModel):
    """Mask characters below a confidence and pin the others, for masked models."""

    sure: float = 0.9
    asks: ClassVar[type] = Denoiser

    def hint(self, symbol: Symbol, token: int, spelling: Spelling) -> Hint:
        """Return a mask or a pinned token."""
        doubted = symbol.is_gap or _confidence(symbol) < self.sure
        return Unknown() if doubted else Known(token)


@dataclass(frozen=True)
class Masked:
    """A network as a masked model: doubtful characters are masked and filled in again."""

    model: Model
    name: str = "masked and refilled"
    settings: Sequence[float] = SURE[:-1]

    def __call__(self, reading: Reading, setting: float) -> Correction:
        """Fill in characters below the setting, the most confident first."""
        return correct(
            reading, self.model, errors=Refilling(sure=setting), policy=Policy(belief=AS_STATED)
        )


@dataclass(frozen=True)
class Localized:
    """DSL: every character is evidence."""

    model: Model
    heeds: bool = True
    """Whether confidences are used."""
    mode: Mode = "surest"
    typed: bool = False
    """Whether the error model has neighbouring keys."""
    trust: Trust | None = None
    lengths: bool = False
    """Whether changes of length are considered, which is slow."""
    rate: float = 0.03
    """Error rate of characters without a confidence; 0 if only gaps are wrong."""

    @property
    def name(self) -> str:
        """The name in the table."""
        kind = "with confidences" if self.heeds else "without confidences"
        mode = ", marginal" if self.mode == "marginal" else ""
        return f"DSL {kind}{mode}{', lengths' if self.lengths else ''}"

    @property
    def settings(self) -> Sequence[float]:
        """Error rates of characters without a confidence."""
        return (self.rate,) if self.heeds else RATES

    def __call__(self, reading: Reading, setting: float) -> Correction:
        """Correct by the posterior, and propose every edit with its probability."""
        confusions = keyboard() if self.typed else {}
        used = reading if self.heeds else plain.read(reading.text)
        errors = ErrorModel(setting, self.trust, confusions)
        lengths = LengthErrors() if self.lengths else None
        return correct(
            used,
            self.model,
            errors=errors,
            lengths=lengths,
            policy=Policy(self.mode, threshold=0.0, belief=AS_STATED),
        )
