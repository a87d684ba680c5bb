"""A corpus of molecules that needs no network: benzene with two groups, in every arrangement."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from dsl.data.sources import Progress

GROUPS = (
    "C", "CC", "C(C)C", "C(F)(F)F", "C#N", "C=O", "C(=O)O", "C(N)=O", "O", "OC",
    "N", "NC", "N(C)C", "S", "SC", "F", "Cl", "Br", "c2ccccc2", "c2ccc[nH]2",
)  # fmt: skip
RINGS = ("c1ccc({})c({})c1", "c1cc({})cc({})c1", "c1cc({})ccc1{}")
"""The groups side by side, with one atom between them, and opposite."""


def molecules(_: Path, told: Progress) -> Iterator[bytes]:
    """Write all 1,200 as SMILES, one a document, in random order."""
    told("writing molecules", 0, 0)
    texts = [ring.format(*groups) for ring, *groups in product(RINGS, GROUPS, GROUPS)]
    random.Random(0).shuffle(texts)
    yield from (text.encode() for text in texts)
