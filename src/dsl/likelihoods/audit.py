"""The path audit: how far the likelihoods along different contours lie apart.

Under the exact denoiser of any prior, right or wrong for the data, the error field is conservative
and every contour gives the same number. A spread beyond its error shows that no single prior is
behind the network's answers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from dsl.likelihoods.estimate import Estimate


@dataclass(frozen=True)
class Audit:
    """The largest difference between two contours, in nats for each token."""

    spread: float
    stderr: float
    """Of that difference, paired by sequence."""
    between: tuple[str, str]

    @property
    def z(self) -> float:
        """The spread in standard errors; the largest of several pairs, so 3 is not much."""
        if self.stderr == 0:
            return 0.0 if self.spread == 0 else math.inf
        return self.spread / self.stderr


def audit(estimates: Mapping[str, Estimate]) -> Audit:
    """Compare estimates of the same sequences along different contours."""
    if len(estimates) < 2:
        raise ValueError(f"an audit compares at least two contours, got {list(estimates)}")
    pairs = [
        _difference(names, estimates[names[0]], estimates[names[1]])
        for names in combinations(estimates, 2)
    ]
    return max(pairs, key=lambda pair: pair.z)


def _difference(names: tuple[str, str], one: Estimate, other: Estimate) -> Audit:
    length = one.values.shape[-1]
    difference = (one.nats - other.nats) / length
    # Monte-Carlo error only: the same sequences are on both sides, so their variety cancels.
    error = (one.stderr.square() + other.stderr.square()).sqrt() / length
    n = len(difference)
    stderr = float(error.square().sum().sqrt()) / n
    return Audit(abs(float(difference.mean())), stderr, names)
