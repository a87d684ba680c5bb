"""What samples look like as token sequences: entropy, repetition, novelty, known words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

Ids = Sequence[int]


def sentence_entropy(tokens: Ids) -> float:
    """Return the entropy of a sequence's own token histogram, in nats (C.4)."""
    n = len(tokens)
    return -sum(c / n * math.log(c / n) for c in Counter(tokens).values())


def ngrams(tokens: Ids, n: int) -> list[tuple[int, ...]]:
    """List the n-grams of a sequence."""
    return [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]


def distinct(samples: Iterable[Ids], n: int) -> float:
    """Return the share of different n-grams among all n-grams of all samples."""
    found = [gram for tokens in samples for gram in ngrams(tokens, n)]
    return len(set(found)) / len(found) if found else math.nan


def repetition(tokens: Ids, n: int) -> float:
    """Return the share of a sequence's n-grams that it has used before."""
    found = ngrams(tokens, n)
    return 1 - len(set(found)) / len(found) if found else math.nan


def novelty(samples: Sequence[Ids], training: np.ndarray, n: int) -> list[float]:
    """Return the share of each sample's n-grams that the training text does not have.

    The n-grams are compared by 64-bit hashes, the training text a piece at a time.
    """
    own = [_hashes(np.asarray(tokens), n) for tokens in samples]
    wanted = np.unique(np.concatenate(own)) if own else np.zeros(0, np.uint64)
    seen = np.zeros(len(wanted), dtype=bool)
    size = 1 << 22
    for begin in range(0, max(1, len(training) - n + 1), size):
        piece = _hashes(np.asarray(training[begin : begin + size + n - 1]), n)
        seen |= np.isin(wanted, piece)
    old = wanted[seen]
    return [float(1 - np.isin(h, old).mean()) if len(h) else math.nan for h in own]


def known_words(text: str, vocabulary: frozenset[str]) -> float:
    """Return the share of a text's whole words that a vocabulary has.

    A first or last word that touches the edge may be cut by it, and is left out.
    """
    words = text.split()
    words = words[not text[:1].isspace() : len(words) - (not text[-1:].isspace())]
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
