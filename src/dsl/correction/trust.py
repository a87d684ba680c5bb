"""How far a reader's confidence can be believed: a monotone map, fitted on a labelled sample."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from dsl import files, strict
from dsl.arguments import probability
from dsl.correction.alignment import align
from dsl.correction.reading import Reading
from dsl.data.folding import fold

FEWEST = 200
"""Characters from which on a fit says something."""
BANDS = 24
"""Bands of confidence in which a fit counts: as many wrong characters in each."""


@dataclass(frozen=True)
class Trust:
    """What stated confidences mean: a line through the given points, level beyond them."""

    stated: tuple[float, ...] = (0.0, 1.0)
    """Confidences, from the lowest to the highest."""
    true: tuple[float, ...] = (0.0, 1.0)
    """How many of the characters of each are right; never fewer at a higher one."""

    def __post_init__(self) -> None:
        if not self.stated or len(self.stated) != len(self.true):
            raise ValueError(
                "stated and true confidences come in pairs, "
                f"got {len(self.stated)} and {len(self.true)}"
            )
        for name in ("stated", "true"):
            points = getattr(self, name)
            for point in points:
                probability(name, point)
            if any(high < low for low, high in pairwise(points)):
                raise ValueError(f"{name} confidences must rise, got {list(points)}")

    def __call__(self, confidence: float) -> float:
        """Return the probability that a character of this confidence was read rightly."""
        after = bisect_right(self.stated, confidence)
        if after in (0, len(self.stated)):
            return self.true[max(0, after - 1)]
        (low, high), (begin, end) = (
            self.stated[after - 1 : after + 1],
            self.true[after - 1 : after + 1],
        )
        return begin + (end - begin) * (confidence - low) / (high - low)

    def write(self, path: Path) -> None:
        """Keep it in a file."""
        values = {"stated": self.stated, "true": self.true}
        files.write_text(path, json.dumps(values, indent=2) + "\n")

    @classmethod
    def read(cls, path: Path) -> Trust:
        """Read it from a file."""
        if not path.is_file():
            raise FileNotFoundError(f"no fitted confidence at {path}")
        values = files.parse_json(path.read_bytes(), str(path))
        if not isinstance(values, dict):
            raise ValueError(f"{path} is not a fitted confidence")
        return strict.read(cls, values, str(path))


AS_STATED = Trust()
"""Confidences that mean what they say."""


def labelled(reading: Reading, written: str) -> list[tuple[float, bool]]:
    """Return the confidence of every character that has one, and whether it was read rightly.

    Args:
        reading: What was read, of one page.
        written: What is truly written there.
    """
    read = [_looks(symbol.text) for symbol in reading.symbols]
    found = []
    for step in align(read, [_looks(character) for character in written]):
        sure = None if step.read is None else reading.symbols[step.read].confidence
        if sure is not None and step.read is not None:
            right = step.written is not None and read[step.read] == _looks(written[step.written])
            found.append((sure, right))
    return found


def _looks(text: str) -> str:
    """Fold a character as models do: a curly quote is no wrong one, nor is a break for a space."""
    folded = fold(text)
    return " " if folded.isspace() else folded if len(folded) == 1 else text


def fit(sample: Sequence[tuple[float, bool]]) -> Trust:
    """Find the map that never falls and under which the labels are likeliest (isotonic regression).

    Args:
        sample: Confidences, and whether each was right.
    """
    if len(sample) < FEWEST:
        raise ValueError(
            f"a fit needs at least {FEWEST} characters with a confidence, got {len(sample)}"
        )
    pooled: list[Band] = []
    for band in _bands(sorted(sample)):
        pooled.append(band)
        while len(pooled) > 1 and pooled[-2].true >= pooled[-1].true:
            high, low = pooled.pop(), pooled.pop()
            pooled.append(Band(low.count + high.count, low.right + high.right, low.sum + high.sum))
    return Trust(tuple(b.stated for b in pooled), tuple(b.true for b in pooled))


@dataclass(frozen=True)
class Band:
    """Characters of neighbouring confidences."""

    count: int
    right: int
    sum: float
    """Of their confidences."""

    @property
    def stated(self) -> float:
        """Their mean confidence."""
        return min(1.0, self.sum / self.count)

    @property
    def true(self) -> float:
        """The share of right ones, half a character being counted as wrong and half as right."""
        return (self.right + 0.5) / (self.count + 1)


def _bands(sample: Sequence[tuple[float, bool]]) -> list[Band]:
    """Cut a sorted sample where a share of the wrong ones is passed; ties stay together."""
    wrong = sum(not right for _, right in sample)
    share = max(1.0, wrong / BANDS)
    found: list[Band] = []
    count = right = passed = 0
    total = 0.0
    for place, (sure, was_right) in enumerate(sample):
        count, right, total = count + 1, right + was_right, total + sure
        last = place + 1 == len(sample)
        if last or (
            count - right + passed >= share * (len(found) + 1) and sample[place + 1][0] > sure
        ):
            found.append(Band(count, right, total))
            passed += count - right
            count, right, total = 0, 0, 0.0
    return found
