"""How far a set of molecules is from another, and how different its own members are."""

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
    """Molecules in their order, duplicates included."""

    smiles: list[str]
    """Spelled canonically."""
    fingerprints: Bits
    fragments: list[list[str]]
    scaffolds: list[str | None]
    properties: Float[np.ndarray, "n k"]
    features: Float[np.ndarray, "n h"]
    """ChemNet's."""

    @classmethod
    def of(
        cls,
        smiles: Sequence[str],
        features: Callable[[Sequence[str]], Float[np.ndarray, "n h"]],
        tell: Callable[[str], None] = lambda _: None,
    ) -> Molecules:
        """Describe valid SMILES; a molecule that comes twice is looked at once."""
        spelled = [chemistry.respelled(text) for text in smiles]
        places: dict[str, int] = {}
        pick = [places.setdefault(text, len(places)) for text in spelled]
        found = []
        for number, text in enumerate(places):
            mol = chemistry.molecule(text)
            if mol is None:
                raise ValueError(f"{text!r} is no molecule")
            if number % 500 == 0:
                tell(f"looking at molecule {number:,} of {len(places):,}")
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
    """A set of molecules in sum: what others are compared with."""

    mean: Float[np.ndarray, "h"]
    covariance: Float[np.ndarray, "h h"]
    fingerprints: Bits
    fragments: Counter[str]
    scaffolds: Counter[str]
    properties: Float[np.ndarray, "n k"]

    @classmethod
    def of(cls, molecules: Molecules) -> Reference:
        """Sum up molecules."""
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
        """The root of the covariance."""
        return root(self.covariance)


def root(covariance: Float[np.ndarray, "h h"]) -> Float[np.ndarray, "h h"]:
    """Return the symmetric root of a matrix that has no eigenvalue below zero but by rounding."""
    values, vectors = np.linalg.eigh(covariance)
    found: np.ndarray = (vectors * np.sqrt(values.clip(0))) @ vectors.T
    return found


BLOCK = 4096
"""Fingerprints compared at a time."""

Weights = Float[np.ndarray, "n"]
"""How often each molecule counts: once, or as a bootstrap has drawn it."""


def _unpacked(bits: Bits, device: str) -> Float[Tensor, "n bits"]:
    return torch.from_numpy(np.unpackbits(bits, axis=1)).to(device).float()


def tanimoto(one: Float[Tensor, "n bits"], other: Float[Tensor, "m bits"]) -> Float[Tensor, "n m"]:
    """Return bits in both over bits in either, for every pair; two empty ones are alike.

    Counts of bits are whole numbers below 2^24, so float32 has them exactly.
    """
    both = one @ other.T
    either = one.sum(dim=1, keepdim=True) + other.sum(dim=1) - both
    return torch.where(either > 0, both / either, 1.0)


def nearest(
    samples: Bits, reference: UInt8[np.ndarray, "m bytes"], *, device: str = "cpu"
) -> Float[np.ndarray, "n"]:
    """Return the similarity of every molecule to the nearest of the reference; SNN is its mean."""
    found = torch.zeros(len(samples), device=device)
    for begin in range(0, len(reference), BLOCK):
        known = _unpacked(reference[begin : begin + BLOCK], device)
        for start in range(0, len(samples), BLOCK):
            part = slice(start, start + BLOCK)
            alike = tanimoto(_unpacked(samples[part], device), known).amax(dim=1)
            found[part] = torch.maximum(found[part], alike)
    return found.double().cpu().numpy()


def closeness(samples: Bits, *, device: str = "cpu") -> Float[np.ndarray, "2 n"]:
    """Return each molecule's mean similarity, and mean squared similarity, to all of the set.

    One minus the mean of the first is IntDiv; one minus the mean of the root of the second is
    IntDiv2, as the published code has it. (The paper takes the root last, which gives less.)
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

    The second is given by its mean and the root of its covariance. The trace of the last root is a
    sum over roots of the eigenvalues of √C' C √C', which is symmetric; so nothing becomes complex
    where C is singular, as it is of few samples.
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
    """Return the cosine between two vectors of counts of parts: fragments or scaffolds.

    Nothing can be said of a set without parts.
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
