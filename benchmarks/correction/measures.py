"""Measures of a correction: errors left, clean words kept, calibration of probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from benchmarks.correction.damage import Damaged
from dsl.apps.correct.reading import Correction, Edit
from dsl.apps.correct.trust import align, distance
from dsl.data import fold
from dsl.evaluation.calibration import reliability
from dsl.likelihoods import Mean

COVERAGES = (0.25, 0.5, 0.75, 1.0)


def level(text: str) -> str:
    """Normalise a text for comparison: single spaces, straight quotes, plain dashes."""
    return " ".join(fold(text).split())


@dataclass(frozen=True)
class Counted:
    """The counts of one text."""

    characters: int
    wrong_before: int
    wrong_after: int
    words: int
    wrong_words_before: int
    wrong_words_after: int
    clean: int
    """Words that were correct before."""
    kept: int
    """Words that were correct before and after."""


def count(damaged: Damaged, corrected: str) -> Counted:
    """Compare a corrected text with the reading and the true text."""
    written, read, after = map(level, (damaged.written, damaged.reading.text, corrected))
    right = [_right(written.split(), text.split()) for text in (read, after)]
    return Counted(
        len(written),
        distance(read, written),
        distance(after, written),
        len(written.split()),
        distance(read.split(), written.split()),
        distance(after.split(), written.split()),
        len(right[0]),
        len(right[0] & right[1]),
    )


def _right(written: Sequence[str], read: Sequence[str]) -> set[int]:
    """Return the places of correct words."""
    return {
        step.written
        for step in align(read, written)
        if step.read is not None
        and step.written is not None
        and read[step.read] == written[step.written]
    }


def judged(damaged: Damaged, found: Correction) -> list[tuple[float, bool]]:
    """Return the probability of every edit, and whether it alone reduces the errors."""
    written = level(damaged.written)
    before = distance(level(found.reading.text), written)

    def alone(edit: Edit) -> bool:
        made = replace(found, edits=[replace(edit, decided=True)])
        return distance(level(made.text), written) < before

    return [(edit.probability, alone(edit)) for edit in found.edits]


@dataclass(frozen=True)
class Share:
    """A ratio of two sums over texts, with its standard error over texts."""

    value: float
    error: float

    def percent(self) -> str:
        """Format as percent."""
        return f"{100 * self.value:.2f} ± {100 * self.error:.2f}%"

    @classmethod
    def of(
        cls,
        rows: Sequence[Counted],
        top: Callable[[Counted], float],
        below: Callable[[Counted], float],
    ) -> Share:
        """Divide the sum of one count by the sum of another."""
        tops, belows = [top(row) for row in rows], [below(row) for row in rows]
        found = Mean.ratio(tops, belows, [0.0] * len(rows))
        return cls(found.mean, found.stderr)


@dataclass(frozen=True)
class Score:
    """The measures of a method on a task."""

    characters_wrong: Share
    words_wrong: Share
    removed: Share
    """The net share of errors that were removed; new errors count against it."""
    clean_words_kept: Share
    characters_per_second: float
    proposed: int = 0
    """Number of edits with a probability."""
    ece: float | None = None
    risk: tuple[float, ...] = ()
    """The share of wrong edits among the most confident 25%, 50%, 75% and 100%."""


def score(
    rows: Sequence[Counted], seconds: float, edits: Sequence[tuple[float, bool]] = ()
) -> Score:
    """Summarise the texts of a task."""
    ece, risk = None, tuple[float, ...]()
    if edits:
        p, right = (torch.tensor(column) for column in zip(*edits, strict=True))
        ece = reliability(p, right).ece
        wrong = ~right[p.argsort(descending=True)]
        sizes = [max(1, round(share * len(wrong))) for share in COVERAGES]
        risk = tuple(float(wrong[:size].float().mean()) for size in sizes)
    return Score(
        Share.of(rows, lambda r: r.wrong_after, lambda r: r.characters),
        Share.of(rows, lambda r: r.wrong_words_after, lambda r: r.words),
        Share.of(rows, lambda r: r.wrong_before - r.wrong_after, lambda r: r.wrong_before),
        Share.of(rows, lambda r: r.kept, lambda r: r.clean),
        math.fsum(r.characters for r in rows) / max(seconds, 1e-9),
        len(edits),
        ece,
        risk,
    )
