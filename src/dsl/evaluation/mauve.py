"""MAUVE between two sets of features, over several k-means seeds and by bootstrap.

mauve-text computes the value (Pillutla et al., 2021); this module adds the protocol and the error.
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
    """The value with the paper's seed, and its variation over seeds and resamples."""

    value: float
    """With k-means seed 25."""
    seed_mean: float
    """The mean over all k-means seeds."""
    seed_deviation: float
    """Standard deviation over k-means seeds."""
    stderr: float
    """Standard deviation over bootstrap resamples of both sets."""
    buckets: int


def mauve(
    reference: Float[np.ndarray, "n h"],
    samples: Float[np.ndarray, "m h"],
    *,
    buckets: int | None = None,
    seeds: int = 3,
    resamples: int = 5,
) -> Mauve:
    """Compare two sets of features, by default with n/10 clusters."""
    n = min(len(reference), len(samples))
    k = buckets or max(2, round(n / 10))
    if n < 2 * k:
        raise ValueError(
            f"MAUVE with {k} clusters needs at least {2 * k} texts on each side, "
            f"got {len(reference)} and {len(samples)}"
        )
    if not (np.isfinite(reference).all() and np.isfinite(samples).all()):
        raise ValueError("features must be finite, got NaN or infinity")
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
    """Call mauve-text once, without its warnings and those of faiss about small clusters."""
    library: Any = require("mauve", extra="eval")
    with contextlib.redirect_stdout(io.StringIO()), silenced_stderr():
        found = library.compute_mauve(
            p_features=reference, q_features=samples, num_buckets=buckets, seed=seed, verbose=False
        )
    return float(found.mauve)


@contextlib.contextmanager
def silenced_stderr() -> Iterator[None]:
    """Discard what compiled code writes to standard error: faiss cannot turn its warning off."""
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
