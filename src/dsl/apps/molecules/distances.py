"""Distances between sets of molecules, and diversity within a set."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from dsl.apps.molecules import chemistry

Bits = UInt8[np.ndarray, "n bytes"]
"""Fingerprints, eight bits to a byte."""


@dataclass(frozen=True, eq=False)
class Molecules:
    """Descriptions of molecules in their order, duplicates included."""

    smiles: list[str]
    """Canonical SMILES."""
    fingerprints: Bits
    fragments: list[list[str]]
    scaffolds: list[str | None]
    properties: Float[np.ndarray, "n k"]
    features: Float[np.ndarray, "n h"]
    """ChemNet features."""

    @classmethod
    def of(
        cls,
        smiles: Sequence[str],
        features: Callable[[Sequence[str]], Float[np.ndarray, "n h"]],
        report: Callable[[str], None] = lambda _: None,
    ) -> Molecules:
        """Describe valid SMILES; duplicates are computed once."""
        spelled = [chemistry.respelled(text) for text in smiles]
        places: dict[str, int] = {}
        pick = [places.setdefault(text, len(places)) for text in spelled]
        found = []
        for number, text in enumerate(places):
            mol = chemistry.molecule(text)
            if mol is None:
                raise ValueError(f"expected valid SMILES, got {text!r}")
            if number % 500 == 0:
                report(f"describing molecule {number:,} of {len(places):,}")
            found.append(
                (
                    chemistry.fingerprint(mol),
                    chemistry.fragments(mol),
                    chemistry.scaffold(mol),
                    chemistry.properties(mol),
                )
            )
        seen = features(list(places))
        bits = np.array([row[0] for row in found], np.uint8).reshape(-1, chemistry.BITS // 8)
        numbers = np.array([row[3] for row in found], float).reshape(-1, len(chemistry.PROPERTIES))
        return cls(
            spelled,
            bits[pick],
            [found[i][1] for i in pick],
            [found[i][2] for i in pick],
            numbers[pick],
            seen[pick],
        )


@dataclass(frozen=True, eq=False)
class Reference:
    """Statistics of a set of molecules that others are compared with."""

    mean: Float[np.ndarray, "h"]
    covariance: Float[np.ndarray, "h h"]
    fingerprints: Bits
    fragments: Counter[str]
    scaffolds: Counter[str]
    properties: Float[np.ndarray, "n k"]

    @classmethod
    def of(cls, molecules: Molecules) -> Reference:
        """Compute the statistics of molecules."""
        features = molecules.features.astype(np.float64)
        return cls(
            features.mean(axis=0),
            np.cov(features, rowvar=False),
            molecules.fingerprints,
            Counter(part for parts in molecules.fragments for part in parts),
            Counter(scaffold for scaffold in molecules.scaffolds if scaffold is not None),
            molecules.properties,
        )

    @cached_property
    def root(self) -> Float[np.ndarray, "h h"]:
        """The square root of the covariance."""
        return root(self.covariance)


def root(covariance: Float[np.ndarray, "h h"]) -> Float[np.ndarray, "h h"]:
    """Return the symmetric root of a positive semi-definite matrix."""
    values, vectors = np.linalg.eigh(covariance)
    found: np.ndarray = (vectors * np.sqrt(values.clip(0))) @ vectors.T
    return found


BLOCK = 4096
"""Fingerprints compared at a time."""

Weights = Float[np.ndarray, "n"]
"""How often a bootstrap has drawn each molecule."""


def _unpacked(bits: Bits, device: str) -> Float[Tensor, "n bits"]:
    return torch.from_numpy(np.unpackbits(bits, axis=1)).to(device).float()


def tanimoto(one: Float[Tensor, "n bits"], other: Float[Tensor, "m bits"]) -> Float[Tensor, "n m"]:
    """Return bits in both over bits in either, for every pair; 1 for two empty ones.

    Counts of bits are integers below 2^24, so float32 is exact.
    """
    both = one @ other.T
    either = one.sum(dim=1, keepdim=True) + other.sum(dim=1) - both
    return torch.where(either > 0, both / either, 1.0)


def nearest(
    samples: Bits, reference: UInt8[np.ndarray, "m bytes"], *, device: str = "cpu"
) -> Float[np.ndarray, "n"]:
    """Return each molecule's similarity to the nearest in the reference; SNN is the mean."""
    found = torch.zeros(len(samples), device=device)
    for begin in range(0, len(reference), BLOCK):
        known = _unpacked(reference[begin : begin + BLOCK], device)
        for start in range(0, len(samples), BLOCK):
            part = slice(start, start + BLOCK)
            alike = tanimoto(_unpacked(samples[part], device), known).amax(dim=1)
            found[part] = torch.maximum(found[part], alike)
    return found.double().cpu().numpy()


def closeness(samples: Bits, *, device: str = "cpu") -> Float[np.ndarray, "2 n"]:
    """Return each molecule's mean similarity, and mean squared similarity, to the whole set.

    IntDiv is one minus the mean of the first. IntDiv2 is one minus the mean root of the second, as
    in the published code. (The paper takes the root of the mean, which gives a lower value.)
    """
    total = np.zeros((2, len(samples)))
    for begin in range(0, len(samples), BLOCK):
        rows = _unpacked(samples[begin : begin + BLOCK], device)
        for start in range(0, len(samples), BLOCK):
            alike = tanimoto(rows, _unpacked(samples[start : start + BLOCK], device)).double()
            for power in (1, 2):
                total[power - 1, begin : begin + BLOCK] += (alike**power).sum(dim=1).cpu().numpy()
    return total / len(samples)


def frechet(
    samples: Float[np.ndarray, "n h"],
    mean: Float[np.ndarray, "h"],
    root: Float[np.ndarray, "h h"],
    weights: Weights | None = None,
) -> float:
    """Return the squared Fréchet distance of two Gaussians, |m − m'|² + tr(C + C' − 2√(C C')).

    The second is given by its mean and the root of its covariance. The trace of the last root is
    the sum of the roots of the eigenvalues of √C' C √C', which is symmetric, so the result stays
    real even where C is singular, as with few samples.
    """
    rows = samples.astype(np.float64)
    counts = None if weights is None else weights.astype(int)
    covariance = np.cov(rows, rowvar=False, fweights=counts)
    shift = ((np.average(rows, axis=0, weights=weights) - mean) ** 2).sum()
    crossed = np.linalg.eigvalsh(root @ covariance @ root).clip(0)
    distance = shift + np.trace(covariance) + (root**2).sum() - 2 * np.sqrt(crossed).sum()
    return max(0.0, float(distance))


def cosine(
    parts: Sequence[Sequence[str]], reference: Counter[str], weights: Weights | None = None
) -> float:
    """Return the cosine between two vectors of part counts (fragments or scaffolds).

    It is NaN for a set without parts.
    """
    own: Counter[str] = Counter()
    for number, held in enumerate(parts):
        for part in held:
            own[part] += 1 if weights is None else weights[number]
    length = math.sqrt(sum(n * n for n in own.values())) * math.sqrt(
        sum(n * n for n in reference.values())
    )
    both = sum(count * reference[part] for part, count in own.items() if part in reference)
    return both / length if length else math.nan
