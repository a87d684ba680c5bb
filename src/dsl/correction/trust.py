"""How far a reader's confidence can be believed: a monotone map, fitted on a labelled sample."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dsl import files, strict
from dsl.arguments import finite_number, probability
from dsl.correction.alignment import align
from dsl.correction.reading import Reading

FEWEST = 200
"""Characters from which on a fit says something."""


@dataclass(frozen=True)
class Trust:
    """How much of a stated confidence is true: c ↦ floor + (ceiling - floor) c^power."""

    power: float = 1.0
    floor: float = 0.0
    ceiling: float = 1.0

    def __post_init__(self) -> None:
        finite_number("power", self.power, least=0.0)
        probability("floor", self.floor)
        probability("ceiling", self.ceiling)
        if self.floor > self.ceiling:
            raise ValueError(
                f"the floor must not exceed the ceiling, got {self.floor:g} and {self.ceiling:g}"
            )

    def __call__(self, confidence: float) -> float:
        """Return the probability that a character of this confidence was read rightly."""
        return self.floor + (self.ceiling - self.floor) * math.pow(confidence, self.power)

    def write(self, path: Path) -> None:
        """Keep it in a file."""
        values = {"power": self.power, "floor": self.floor, "ceiling": self.ceiling}
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


def labelled(reading: Reading, written: str) -> list[tuple[float, bool]]:
    """Return the confidence of every character that has one, and whether it was read rightly.

    Args:
        reading: What was read, of one page.
        written: What is truly written there.
    """
    read = [symbol.text for symbol in reading.symbols]
    found = []
    for step in align(read, written):
        sure = None if step.read is None else reading.symbols[step.read].confidence
        if sure is not None and step.read is not None:
            right = step.written is not None and read[step.read] == written[step.written]
            found.append((sure, right))
    return found


def fit(sample: Sequence[tuple[float, bool]]) -> Trust:
    """Find the map under which what was right and wrong is likeliest, by search.

    Args:
        sample: Confidences, and whether each was right.
    """
    if len(sample) < FEWEST:
        raise ValueError(
            f"a fit needs at least {FEWEST} characters with a confidence, got {len(sample)}"
        )
    sure = np.array([confidence for confidence, _ in sample])
    right = np.array([was_right for _, was_right in sample])
    best = Trust()
    for width in (1.0, 0.5, 0.25, 0.1, 0.05):
        best = min(_near(best, width), key=lambda trust: _loss(trust, sure, right))
    return best


def _near(centre: Trust, width: float) -> list[Trust]:
    """List maps around one: powers by factors, floor and error of the ceiling likewise."""
    found = []
    steps = [math.exp(3 * width * k) for k in (-2, -1, 0, 1, 2)]
    wrong = max(1 - centre.ceiling, 1e-3)
    for a in steps:
        for floor in {min(0.95, max(0.0, centre.floor + 0.4 * width * k)) for k in range(-2, 3)}:
            for b in steps:
                ceiling = 1 - min(0.5, max(1e-4, wrong * b))
                if floor < ceiling:
                    found.append(Trust(min(100.0, centre.power * a), floor, ceiling))
    return found


def _loss(trust: Trust, sure: np.ndarray, right: np.ndarray) -> float:
    """Return the cross-entropy of the labels."""
    p = trust.floor + (trust.ceiling - trust.floor) * sure**trust.power
    p = p.clip(1e-6, 1 - 1e-6)
    return -float(np.log(np.where(right, p, 1 - p)).sum())
