"""Molecules by rdkit: spelling, fingerprints, parts, properties, filters; ChemNet features."""

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
"""Atoms of the largest ring that passes its filter."""
TOGETHER = 2000
"""Molecules that are filtered at a time, to limit memory."""
PROPERTIES = ("logP", "SA", "QED", "weight")


def rdkit(module: str) -> Any:
    """Import a module of rdkit, with its messages about invalid molecules switched off."""
    found = require(f"rdkit.{module}", extra=EXTRA)
    require("rdkit.RDLogger", extra=EXTRA).DisableLog("rdApp.*")
    return found


def molecule(smiles: str) -> Any | None:
    """Read SMILES; None if it is invalid or has no atoms."""
    found = rdkit("Chem").MolFromSmiles(smiles) if smiles else None
    return found if found is not None and found.GetNumAtoms() else None


def spelling(mol: Any) -> str:
    """Return the canonical SMILES of a molecule."""
    smiles: str = rdkit("Chem").MolToSmiles(mol)
    return smiles


def canonical(smiles: str) -> str | None:
    """Return the canonical SMILES; None if it is invalid."""
    mol = molecule(smiles)
    return None if mol is None else spelling(mol)


def respelled(smiles: str) -> str:
    """Return the canonical SMILES; invalid ones are unchanged."""
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
    """Return the Bemis–Murcko scaffold (rings and their links); None below two rings."""
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
        """Read the pattern tables of the MOSES package."""
        rows = [row["smarts"] for row in csv.DictReader(io.StringIO(mcf.decode()))]
        rows += [row[0] for row in csv.reader(io.StringIO(pains.decode()))]
        return cls([rdkit("Chem").MolFromSmarts(smarts.strip()) for smarts in rows])

    def passed(self, smiles: Sequence[str]) -> list[bool]:
        """Return which molecules have MOSES's elements, no charge, small rings and no pattern."""
        found: list[bool] = []
        for begin in range(0, len(smiles), TOGETHER):
            some = [molecule(text) for text in smiles[begin : begin + TOGETHER]]
            caught = self._caught(some)
            found += [_allowed(mol) and number not in caught for number, mol in enumerate(some)]
        return found

    def _caught(self, mols: Sequence[Any]) -> set[int]:
        """Return the indices of molecules that match a pattern.

        rdkit's substructure library uses fingerprints to skip molecules that cannot match.
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
"""Features of a molecule in ChemNet."""
ROOM = 350
"""Input length of ChemNet; shorter SMILES are padded, and padding changes the features."""

Features = Float[np.ndarray, "n h"]
Report = Callable[[str], None]


@cache
def _network() -> Any:
    return require("fcd", extra=EXTRA).load_ref_model()


@torch.no_grad()
def features(
    smiles: Sequence[str],
    *,
    device: str = "cpu",
    batch_size: int = 128,
    report: Report = lambda _: None,
) -> Features:
    """Return ChemNet's last state for every molecule; it depends on the spelling.

    Raises:
        ValueError: if a molecule is longer than ChemNet's input.
    """
    if longest := max((s for s in smiles if len(s) >= ROOM), key=len, default=None):
        raise ValueError(f"SMILES must have fewer than {ROOM} characters, got {len(longest)}")
    read: Any = require("fcd.utils", extra=EXTRA).SmilesDataset
    network = _network().to(device)
    rows = [np.zeros((0, WIDTH), dtype=np.float32)]
    for begin in range(0, len(smiles), batch_size):
        report(f"ChemNet has read {begin:,} of {len(smiles):,} molecules")
        batch = read(smiles[begin : begin + batch_size])
        letters = torch.from_numpy(np.stack([batch[i] for i in range(len(batch))]))
        last = network(letters.transpose(1, 2).float().to(device))
        rows.append(last.cpu().numpy().copy())  # a view would keep all hidden states in memory
    return np.concatenate(rows)
