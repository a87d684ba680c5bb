"""ChemNet's features of molecules, of which FCD compares the mean and the covariance."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8

from dsl._util.extras import require

EXTRA = "molecules"
BITS = 1024
"""Bits of a Morgan fingerprint, of radius 2."""
ATOMS = frozenset({"C", "N", "S", "O", "F", "Cl", "Br", "H"})
"""The elements of MOSES."""
LARGEST_RING = 7
"""Atoms of the largest ring that its filter lets pass."""
TOGETHER = 2000
"""Molecules that are filtered at a time: with their hydrogens they take some memory."""
PROPERTIES = ("logP", "SA", "QED", "weight")


def rdkit(module: str) -> Any:
    """Import a module of rdkit, which is told not to write about molecules that are none."""
    found = require(f"rdkit.{module}", extra=EXTRA)
    require("rdkit.RDLogger", extra=EXTRA).DisableLog("rdApp.*")
    return found


def molecule(smiles: str) -> Any | None:
    """Read SMILES; None if rdkit cannot make a molecule of it. No atoms make no molecule."""
    found = rdkit("Chem").MolFromSmiles(smiles) if smiles else None
    return found if found is not None and found.GetNumAtoms() else None


def spelling(mol: Any) -> str:
    """Return the canonical SMILES: one molecule has one."""
    smiles: str = rdkit("Chem").MolToSmiles(mol)
    return smiles


def canonical(smiles: str) -> str | None:
    """Spell SMILES canonically; None if it is no molecule."""
    mol = molecule(smiles)
    return None if mol is None else spelling(mol)


def respelled(smiles: str) -> str:
    """Spell SMILES canonically, or leave what is none as it is."""
    return canonical(smiles) or smiles


@cache
def _morgan() -> Any:
    return rdkit("Chem.rdFingerprintGenerator").GetMorganGenerator(radius=2, fpSize=BITS)


def fingerprint(mol: Any) -> UInt8[np.ndarray, "bytes"]:
    """Return the bits of the Morgan fingerprint, eight to a byte."""
    return np.packbits(_morgan().GetFingerprintAsNumPy(mol))


def fragments(mol: Any) -> list[str]:
    """Break a molecule at its BRICS bonds."""
    return spelling(rdkit("Chem.BRICS").BreakBRICSBonds(mol)).split(".")


def scaffold(mol: Any) -> str | None:
    """Return the Bemis–Murcko scaffold: rings and what links them, if there are two or more."""
    found = rdkit("Chem.Scaffolds.MurckoScaffold").GetScaffoldForMol(mol)
    return spelling(found) if found.GetRingInfo().NumRings() >= 2 else None


@cache
def _properties() -> dict[str, Callable[[Any], float]]:
    return {
        "logP": rdkit("Chem.Crippen").MolLogP,
        "SA": rdkit("Contrib.SA_Score.sascorer").calculateScore,
        "QED": rdkit("Chem.QED").qed,
        "weight": rdkit("Chem.Descriptors").MolWt,
    }


def properties(mol: Any) -> list[float]:
    """Return lipophilicity, synthetic accessibility, drug-likeness and weight."""
    return [_properties()[name](mol) for name in PROPERTIES]


@dataclass(frozen=True, eq=False)
class Filters:
    """The medicinal chemistry (MCF) and PAINS patterns, and the limits of the data set."""

    patterns: Sequence[Any]

    @classmethod
    def read(cls, mcf: bytes, pains: bytes) -> Filters:
        """Read the tables of patterns that the package of MOSES has."""
        rows = [row["smarts"] for row in csv.DictReader(io.StringIO(mcf.decode()))]
        rows += [row[0] for row in csv.reader(io.StringIO(pains.decode()))]
        return cls([rdkit("Chem").MolFromSmarts(smarts.strip()) for smarts in rows])

    def passed(self, smiles: Sequence[str]) -> list[bool]:
        """Tell which molecules have known elements, no charge, small rings and no pattern."""
        found: list[bool] = []
        for begin in range(0, len(smiles), TOGETHER):
            some = [molecule(text) for text in smiles[begin : begin + TOGETHER]]
            caught = self._caught(some)
            found += [_allowed(mol) and number not in caught for number, mol in enumerate(some)]
        return found

    def _caught(self, mols: Sequence[Any]) -> set[int]:
        """Find the molecules that have a pattern.

        rdkit's library of molecules sees from fingerprints which of them a pattern cannot be in.
        """
        kinds = rdkit("Chem.rdSubstructLibrary")
        library = kinds.SubstructLibrary(kinds.MolHolder(), kinds.PatternHolder())
        for mol in mols:
            library.AddMol(rdkit("Chem").AddHs(mol))
        caught: set[int] = set()
        for pattern in self.patterns:
            caught.update(library.GetMatches(pattern, numThreads=1, maxResults=-1))
        return caught


def _allowed(mol: Any) -> bool:
    if any(a.GetFormalCharge() or a.GetSymbol() not in ATOMS for a in mol.GetAtoms()):
        return False
    return all(len(ring) <= LARGEST_RING for ring in mol.GetRingInfo().AtomRings())


WIDTH = 512
"""Numbers that ChemNet says of a molecule."""
ROOM = 350
"""Characters that ChemNet reads: what is shorter is padded, and padding changes the features."""

Features = Float[np.ndarray, "n h"]
Tell = Callable[[str], None]


@cache
def _network() -> Any:
    return require("fcd", extra=EXTRA).load_ref_model()


@torch.no_grad()
def features(
    smiles: Sequence[str],
    *,
    device: str = "cpu",
    batch_size: int = 128,
    tell: Tell = lambda _: None,
) -> Features:
    """Return ChemNet's last state for every molecule; it reads letters, so spell them canonically.

    Raises:
        ValueError: if a molecule is longer than ChemNet reads.
    """
    if longest := max((s for s in smiles if len(s) >= ROOM), key=len, default=None):
        raise ValueError(f"ChemNet reads fewer than {ROOM} characters, got {len(longest)}")
    read: Any = require("fcd.utils", extra=EXTRA).SmilesDataset
    network = _network().to(device)
    rows = [np.zeros((0, WIDTH), dtype=np.float32)]
    for begin in range(0, len(smiles), batch_size):
        tell(f"ChemNet has read {begin:,} of {len(smiles):,} molecules")
        batch = read(smiles[begin : begin + batch_size])
        letters = torch.from_numpy(np.stack([batch[i] for i in range(len(batch))]))
        last = network(letters.transpose(1, 2).float().to(device))
        rows.append(last.cpu().numpy().copy())  # a view would keep the states of all characters
    return np.concatenate(rows)
