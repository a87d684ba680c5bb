"""Calibration of confidences: fitted on labelled text, and measured for Tesseract.

The measured maps come from `python -m benchmarks trust --texts 48`, seed 0: Tesseract 5.3 read worn
pages of held-out English (docs/correcting.md). Other pages, languages and versions may differ;
`dsl correct --fit` fits a map to yours.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from dsl._util import config as strict
from dsl._util import files
from dsl._util.isotonic import pooled
from dsl._util.validate import probability
from dsl.apps.correct.reading import Reading
from dsl.data import fold

LONGEST = 20_000
"""Maximum length of an aligned text; the table takes its square in bytes."""


@dataclass(frozen=True)
class Step:
    """A character of both texts, or of one."""

    read: int | None
    """The place in the text as read; None if a character was lost."""
    written: int | None
    """The place in the text as written; None if a character was added."""


def align(read: Sequence[Any], written: Sequence[Any]) -> list[Step]:
    """Return an alignment with the fewest changes.

    Args:
        read: Characters, or words.
        written: Characters, or words.
    """
    if max(len(read), len(written)) > LONGEST:
        raise ValueError(
            f"an aligned text must have at most {LONGEST:,} characters, "
            f"got {len(read):,} and {len(written):,}: align them page by page"
        )
    symbols = {symbol: number for number, symbol in enumerate({*read, *written})}
    one, other = (np.array([symbols[s] for s in side], dtype=np.int64) for side in (read, written))
    moves = np.zeros((len(one) + 1, len(other) + 1), dtype=np.uint8)
    moves[0, 1:], moves[1:, 0] = LOST, ADDED
    places = np.arange(len(other) + 1)
    row = places.astype(np.int64)
    for i, symbol in enumerate(one):
        across = row[:-1] + (other != symbol)
        added = row + 1
        best = np.concatenate([added[:1], np.minimum(across, added[1:])])
        # a lost character costs 1 more than the place before it, so a running minimum covers all
        following = np.minimum.accumulate(best - places) + places
        moves[i + 1, 1:] = np.where(across == following[1:], BOTH, LOST)
        moves[i + 1, 1:][(added[1:] == following[1:]) & (across != following[1:])] = ADDED
        row = following
    return list(_back(moves))[::-1]


BOTH, LOST, ADDED = 0, 1, 2


def _back(moves: np.ndarray) -> Iterator[Step]:
    """Walk back through the table of moves."""
    i, j = moves.shape[0] - 1, moves.shape[1] - 1
    while i or j:
        move = int(moves[i, j])
        i, j = i - (move != LOST), j - (move != ADDED)
        yield Step(None if move == LOST else i, None if move == ADDED else j)


def distance(read: Sequence[Any], written: Sequence[Any]) -> int:
    """Return the edit distance."""
    return sum(
        step.read is None or step.written is None or read[step.read] != written[step.written]
        for step in align(read, written)
    )


FEWEST = 200
"""Minimum number of characters for a fit."""
BANDS = 24
"""Bands of confidence of a fit, with an equal number of wrong characters each."""


@dataclass(frozen=True)
class Trust:
    """A calibration map: linear between the given points, constant beyond them."""

    stated: tuple[float, ...] = (0.0, 1.0)
    """Stated confidences, in rising order."""
    true: tuple[float, ...] = (0.0, 1.0)
    """The share of correct characters at each of them; never falls."""

    def __post_init__(self) -> None:
        if not self.stated or len(self.stated) != len(self.true):
            raise ValueError(
                "stated and true must have the same length, at least 1, "
                f"got {len(self.stated)} and {len(self.true)}"
            )
        for name in ("stated", "true"):
            points = getattr(self, name)
            for point in points:
                probability(name, point)
            if any(high < low for low, high in pairwise(points)):
                raise ValueError(f"{name} confidences must rise, got {list(points)}")

    def __call__(self, confidence: float) -> float:
        """Return the probability that a character with this confidence is correct."""
        after = bisect_right(self.stated, confidence)
        if after in (0, len(self.stated)):
            return self.true[max(0, after - 1)]
        (low, high), (begin, end) = (
            self.stated[after - 1 : after + 1],
            self.true[after - 1 : after + 1],
        )
        return begin + (end - begin) * (confidence - low) / (high - low)

    def write(self, path: Path) -> None:
        """Write the map to a file."""
        values = {"stated": self.stated, "true": self.true}
        files.write_text(path, json.dumps(values, indent=2) + "\n")

    @classmethod
    def read(cls, path: Path) -> Trust:
        """Read a map from a file."""
        if not path.is_file():
            raise FileNotFoundError(f"no fitted confidence at {path}")
        values = files.parse_json(path.read_bytes(), str(path))
        if not isinstance(values, dict):
            raise ValueError(f"{path} is not a fitted confidence")
        return strict.read(cls, values, str(path))


AS_STATED = Trust()
"""The identity: confidences as stated."""


def labelled(reading: Reading, written: str) -> list[tuple[float, bool]]:
    """Return the confidence of every character that has one, and whether it is correct.

    Args:
        reading: One page as read.
        written: The true text of the page.
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
    """Fold a character as models do, so that curly quotes and line breaks are not errors."""
    folded = fold(text)
    return " " if folded.isspace() else folded if len(folded) == 1 else text


def fit(sample: Sequence[tuple[float, bool]]) -> Trust:
    """Fit a map by isotonic regression.

    Args:
        sample: Confidences, and whether each character is correct.
    """
    if len(sample) < FEWEST:
        raise ValueError(
            f"a fit needs at least {FEWEST} characters with a confidence, got {len(sample)}"
        )
    bands = pooled(_bands(sorted(sample)), Band.__add__, lambda low, high: low.true >= high.true)
    return Trust(tuple(b.stated for b in bands), tuple(b.true for b in bands))


@dataclass(frozen=True)
class Band:
    """Characters with similar confidences."""

    count: int
    right: int
    sum: float
    """The sum of their confidences."""

    def __add__(self, other: Band) -> Band:
        return Band(self.count + other.count, self.right + other.right, self.sum + other.sum)

    @property
    def stated(self) -> float:
        """Their mean confidence."""
        return min(1.0, self.sum / self.count)

    @property
    def true(self) -> float:
        """The share of correct characters, smoothed by half a correct and half a wrong one."""
        return (self.right + 0.5) / (self.count + 1)


def _bands(sample: Sequence[tuple[float, bool]]) -> list[Band]:
    """Cut a sorted sample into bands with an equal number of wrong ones; ties stay together."""
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


CHARACTERS, WORDS = "tesseract-characters", "tesseract-words"
"""Scales: confidences of single characters, and of whole words."""

MEASURED = {
    CHARACTERS: Trust(
        (
         0.8133, 0.8446, 0.8612, 0.8735, 0.8850, 0.8951, 0.9032, 0.9104, 0.9200, 0.9319, 0.9401,
         0.9481, 0.9552, 0.9598, 0.9640, 0.9687, 0.9737, 0.9782, 0.9825, 0.9865, 0.9940, 0.9957,
        ),
        (
         0.3054, 0.3759, 0.3815, 0.4205, 0.4885, 0.4899, 0.5327, 0.5470, 0.5832, 0.6297, 0.6749,
         0.6843, 0.7295, 0.7510, 0.7552, 0.8227, 0.8416, 0.8715, 0.8924, 0.9330, 0.9938, 0.9999,
        ),
    ),
}  # fmt: skip

BELIEVED = {
    CHARACTERS: Trust(
        (
         0.1680, 0.2663, 0.3775, 0.4498, 0.4798, 0.5306, 0.5910, 0.6406, 0.7148, 0.8250, 0.8972,
         0.9516, 0.9909, 0.9995,
        ),
        (
         0.1250, 0.1346, 0.1582, 0.1667, 0.1964, 0.2611, 0.2969, 0.3358, 0.3667, 0.4962, 0.5833,
         0.7013, 0.8469, 0.9932,
        ),
    ),
}  # fmt: skip
"""Calibration of the edit probabilities of the default model for such characters:
`python -m benchmarks belief --texts 16`, seed 0."""
