"""MAUVE between two clouds of features, over several k-means seeds and by bootstrap.

The measure itself is mauve-text's (Pillutla et al., 2021); here are the protocol and the error.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
from jaxtyping import Float

from dsl._util.extras import require
from dsl.likelihoods.estimate import deviation

PAPER_SEED = 25


@dataclass(frozen=True)
class Mauve:
    """The value with the paper's seed, and how far chance moves it."""

    value: float
    """With k-means seed 25."""
    seed_mean: float
    """The mean over all k-means seeds."""
    seed_deviation: float
    """Standard deviation over k-means seeds."""
    stderr: float
    """Standard deviation over bootstrap resamples of both sides: what another draw would do."""
    buckets: int


def mauve(
    reference: Float[np.ndarray, "n h"],
    samples: Float[np.ndarray, "m h"],
    *,
    buckets: int | None = None,
    seeds: int = 3,
    resamples: int = 5,
) -> Mauve:
    """Compare two sets of features; K = n/10 buckets unless said otherwise."""
    n = min(len(reference), len(samples))
    k = buckets or max(2, round(n / 10))
    if n < 2 * k:
        raise ValueError(
            f"MAUVE with {k} clusters needs at least {2 * k} texts on each side, "
            f"got {len(reference)} and {len(samples)}"
        )
    if not (np.isfinite(reference).all() and np.isfinite(samples).all()):
        raise ValueError("the features have values that are not finite")
    values = [compute(reference, samples, k, PAPER_SEED + i) for i in range(seeds)]
    rng = np.random.default_rng(PAPER_SEED)
    again = []
    for _ in range(resamples):
        p = reference[rng.integers(0, len(reference), len(reference))]
        q = samples[rng.integers(0, len(samples), len(samples))]
        again.append(compute(p, q, k, PAPER_SEED))
    return Mauve(
        values[0],
        fmean(values),
        deviation(values),
        deviation(again),
        k,
    )


def compute(
    reference: Float[np.ndarray, "n h"],
    samples: Float[np.ndarray, "m h"],
    buckets: int,
    seed: int,
) -> float:
    """Call mauve-text once; what it and faiss say of few points in a cluster is not shown."""
    library: Any = require("mauve", extra="eval")
    with contextlib.redirect_stdout(io.StringIO()), silenced_stderr():
        found = library.compute_mauve(
            p_features=reference, q_features=samples, num_buckets=buckets, seed=seed, verbose=False
        )
    return float(found.mauve)


@contextlib.contextmanager
def silenced_stderr() -> Iterator[None]:
    """Send what compiled code writes to the standard error nowhere; exceptions still come.

    faiss has no switch for its warning, and mauve-text no argument that would prevent it.
    """
    try:
        kept = os.dup(2)
    except OSError:  # there is no standard error
        yield
        return
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
