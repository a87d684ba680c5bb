"""Data from the MOSES package: statistics of its test sets, its training set, its filters.

The statistics are a pickle from 2020, and unpickling can run code. So the digest is checked, and
the reader allows five names only, which can make nothing but arrays and counters.
"""

from __future__ import annotations

import codecs
import hashlib
import io
import pickle
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt64
from numpy.lib import format as npy

from dsl._util.files import locked, whole
from dsl.apps.molecules import chemistry
from dsl.apps.molecules import corpus as moses
from dsl.apps.molecules.distances import Reference

Report = Callable[[str], None]
ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): codecs.encode,
    ("collections", "Counter"): Counter,
}
"""The names in the published statistics, and today's objects for them."""
CHECKED, SPARED = 200, 2
"""How many fingerprints are compared with the published ones, and how many may differ."""


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Return an allowed object by name."""
        if (module, name) not in ALLOWED:
            raise ValueError(f"the statistics call {module}.{name}, which is not allowed")
        return ALLOWED[module, name]


def unpickled(content: bytes) -> dict[str, Any]:
    """Read the statistics object of an .npz file."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive, archive.open("stats.npy") as file:
        npy.read_magic(file)
        npy.read_array_header_1_0(file)
        found: dict[str, Any] = _Reader(file).load().item()
    return found


def reference(split: str, cache: Path, *, report: Report = lambda _: None) -> Reference:
    """Return the statistics of a test set, cached as arrays for this version of rdkit."""
    path = cache / "moses" / f"{split}-rdkit-{_rdkit()}.npz"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path, wait=True):
            if not path.is_file():
                report(f"reading the published statistics of {split}")
                _write(path, _published(split, cache / "downloads", report))
    return _read(path)


def _published(split: str, downloads: Path, report: Report) -> Reference:
    name = f"moses/dataset/data/{moses.PUBLISHED[split]}_stats.npz"
    stats = unpickled(moses.read(name, downloads, lambda what, *_: report(what)))
    bits = np.packbits(stats["SNN"]["fps"].astype(np.uint8), axis=1)
    smiles = [s.decode() for s in moses.published(split, downloads, lambda *_: None)]
    require_same_bits(smiles, bits)
    return Reference(
        np.asarray(stats["FCD"]["mu"], dtype=np.float64),
        np.asarray(stats["FCD"]["sigma"], dtype=np.float64),
        bits,
        _respelled(stats["Frag"]["frag"]),
        _respelled(stats["Scaf"]["scaf"]),
        np.stack([np.asarray(stats[p]["values"]) for p in chemistry.PROPERTIES], axis=1),
    )


def require_same_bits(smiles: Sequence[str], bits: np.ndarray) -> None:
    """Raise ValueError if this rdkit's fingerprints differ from those of the statistics.

    A few in 100,000 differ because rdkit's aromaticity has changed; those are tolerated.
    """
    places = range(0, len(smiles), max(1, len(smiles) // CHECKED))
    mols = [chemistry.molecule(smiles[i]) for i in places]
    pairs = zip(places, mols, strict=True)
    other = sum(m is None or bool((chemistry.fingerprint(m) != bits[i]).any()) for i, m in pairs)
    if other > SPARED:
        raise ValueError(
            f"fingerprints of rdkit {_rdkit()} must match the published statistics, "
            f"got {other} of {len(places)} that differ"
        )


def _respelled(counts: Counter[str]) -> Counter[str]:
    """Respell parts as this rdkit does, so that they can be matched."""
    found: Counter[str] = Counter()
    for part, count in counts.items():
        found[chemistry.respelled(part)] += int(count)
    return found


def _write(path: Path, reference: Reference) -> None:
    fields = {field: getattr(reference, field) for field in ARRAYS}
    for field in COUNTERS:
        counts: Counter[str] = getattr(reference, field)
        fields[f"{field}_names"] = np.array(list(counts))
        fields[f"{field}_counts"] = np.array(list(counts.values()))
    with whole(path) as part, part.open("wb") as file:
        np.savez(file, allow_pickle=False, **fields)


def _read(path: Path) -> Reference:
    fields: dict[str, Any] = {}
    try:
        with np.load(path, allow_pickle=False) as held:
            fields |= {field: held[field] for field in ARRAYS}
            for field in COUNTERS:
                names, counts = held[f"{field}_names"], held[f"{field}_counts"]
                pairs = zip(names.tolist(), counts.tolist(), strict=True)
                fields[field] = Counter(dict(pairs))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is damaged; delete it to create it again") from error
    return Reference(**fields)


ARRAYS = ("mean", "covariance", "fingerprints", "properties")
COUNTERS = ("fragments", "scaffolds")


def training(cache: Path, *, report: Report = lambda _: None) -> UInt64[np.ndarray, "n"]:
    """Return hashes of the published training molecules, sorted, as this rdkit spells them."""
    path = cache / "moses" / f"train-rdkit-{_rdkit()}.npy"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path, wait=True):
            if not path.is_file():
                report("reading the training molecules")
                lines = moses.published("train", cache / "downloads", lambda what, *_: report(what))
                with whole(path) as part:
                    np.save(part, np.sort(hashes(as_spelled(s.decode()) for s in lines)))
    found: np.ndarray = np.load(path, allow_pickle=False)
    return found


OLD = re.compile(r"\[H\]|-[0-9]")
"""Where today's spelling may differ: explicit hydrogens, rings closed by a single bond."""


def as_spelled(smiles: str) -> str:
    """Respell a published molecule as this rdkit does.

    The published spelling is still canonical except for 36 of the 176,074 test molecules, and the
    pattern matches all of these.
    """
    return chemistry.respelled(smiles) if OLD.search(smiles) else smiles


def hashes(texts: Iterable[str]) -> UInt64[np.ndarray, "n"]:
    """Return 64 bits of a digest of every text."""
    digests = [hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts]
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


def filters(cache: Path, *, report: Report = lambda _: None) -> chemistry.Filters:
    """Return the published filters."""
    tables = (
        moses.read(f"moses/metrics/{name}.csv", cache / "downloads", lambda what, *_: report(what))
        for name in ("mcf", "wehi_pains")
    )
    return chemistry.Filters.read(*tables)


def _rdkit() -> str:
    chemistry.rdkit("Chem")
    return version("rdkit")
