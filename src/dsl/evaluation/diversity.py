"""Diversity of token sequences: entropy, repetition, novelty, known words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

Ids = Sequence[int]


def sentence_entropy(tokens: Ids) -> float:
    """Return the entropy of a sequence's own token histogram, in nats (C.4)."""
    n = len(tokens)
    if not n:
        return math.nan
    return -sum(c / n * math.log(c / n) for c in Counter(tokens).values())


def ngrams(tokens: Ids, n: int) -> list[tuple[int, ...]]:
    """List the n-grams of a sequence."""
    return [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]


def distinct(samples: Iterable[Ids], n: int) -> float:
    """Return the share of different n-grams among all n-grams of all samples."""
    found = [gram for tokens in samples for gram in ngrams(tokens, n)]
    return len(set(found)) / len(found) if found else math.nan


def repetition(tokens: Ids, n: int) -> float:
    """Return the share of a sequence's n-grams that occur earlier in it."""
    found = ngrams(tokens, n)
    return 1 - len(set(found)) / len(found) if found else math.nan


SORTED_AT_MOST = 2**28
"""Longest training text, in tokens, whose n-grams are sorted in memory (2 GB)."""


class Seen:
    """The n-grams of a training text, compared by 64-bit hashes.

    They are sorted once. Those of a larger text are read again, piece by piece, for each set of
    samples.
    """

    def __init__(self, training: np.ndarray, n: int) -> None:
        self.training, self.n = training, n
        small = len(training) <= SORTED_AT_MOST
        self._sorted = np.sort(np.concatenate(list(self._pieces()))) if small else None

    def novelty(self, samples: Sequence[Ids]) -> list[float]:
        """Return the share of each sample's n-grams that the training text does not have."""
        own = [_hashes(np.asarray(tokens), self.n) for tokens in samples]
        wanted = np.unique(np.concatenate(own)) if own else np.zeros(0, np.uint64)
        old = wanted[self._has(wanted)]
        return [float(1 - np.isin(h, old).mean()) if len(h) else math.nan for h in own]

    def _has(self, wanted: np.ndarray) -> np.ndarray:
        if self._sorted is not None:
            return _among(wanted, self._sorted)
        found = np.zeros(len(wanted), dtype=bool)
        for piece in self._pieces():
            found |= _among(wanted, np.sort(piece))
        return found

    def _pieces(self, size: int = 1 << 22) -> Iterator[np.ndarray]:
        for begin in range(0, max(1, len(self.training) - self.n + 1), size):
            yield _hashes(np.asarray(self.training[begin : begin + size + self.n - 1]), self.n)


def _among(wanted: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """Return which numbers occur in a sorted array."""
    if not len(ordered):
        return np.zeros(len(wanted), dtype=bool)
    at = np.searchsorted(ordered, wanted).clip(max=len(ordered) - 1)
    found: np.ndarray = ordered[at] == wanted
    return found


def known_words(
    text: str, vocabulary: frozenset[str], *, whole: tuple[bool, bool] = (False, False)
) -> float:
    """Return the share of a text's whole words that a vocabulary has.

    A first or last word at the edge may be incomplete and is ignored, unless `whole` says that the
    text begins or ends there.
    """
    words = text.split()
    first = not whole[0] and not text[:1].isspace()
    last = not whole[1] and not text[-1:].isspace()
    words = words[first : len(words) - last]
    return sum(word in vocabulary for word in words) / len(words) if words else math.nan


def _hashes(tokens: np.ndarray, n: int) -> np.ndarray:
    """Hash every n-gram: a polynomial in an odd number, modulo 2^64."""
    if len(tokens) < n:
        return np.zeros(0, dtype=np.uint64)
    values = tokens.astype(np.uint64) + np.uint64(1)
    total = np.zeros(len(tokens) - n + 1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for i in range(n):
            total = total * np.uint64(0x9E3779B97F4A7C15) + values[i : len(values) - n + 1 + i]
    return total
