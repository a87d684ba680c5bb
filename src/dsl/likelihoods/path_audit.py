"""The path audit: the spread of likelihoods along different contours.

Under the exact denoiser of any prior, right or wrong for the data, the error field is conservative
and every contour gives the same number. A spread beyond its error shows that the network's
predictions do not come from a single prior.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from dsl.likelihoods.estimate import Reading


@dataclass(frozen=True)
class Audit:
    """The largest difference between two contours, in nats for each token."""

    spread: float
    stderr: float
    """Standard error of the spread, paired by sequence."""
    between: tuple[str, str]

    @property
    def z(self) -> float:
        """The spread in standard errors. It is the largest of several pairs: 3 is weak evidence."""
        if self.stderr == 0:
            return 0.0 if self.spread == 0 else math.inf
        return self.spread / self.stderr


def audit(readings: Mapping[str, Reading], scored: int) -> Audit:
    """Compare readings of the same sequences along different contours.

    Args:
        readings: The estimates of each contour.
        scored: The number of tokens that were scored in all sequences together.
    """
    if len(readings) < 2:
        raise ValueError(f"an audit compares at least two contours, got {list(readings)}")
    pairs = [
        _difference(names, readings[names[0]], readings[names[1]], scored)
        for names in combinations(readings, 2)
    ]
    return max(pairs, key=lambda pair: pair.z)


def _difference(names: tuple[str, str], one: Reading, other: Reading, scored: int) -> Audit:
    spread = float((one.nats - other.nats).sum()) / scored
    # Monte-Carlo error only: the same sequences are on both sides, so their variety cancels.
    variance = float((one.stderr.square() + other.stderr.square()).sum())
    return Audit(abs(spread), math.sqrt(variance) / scored, names)
