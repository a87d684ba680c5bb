"""Molecules with everything that is measured of them, and sets of them in sum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, UInt8

from dsl.evaluation.molecules import chemistry

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
