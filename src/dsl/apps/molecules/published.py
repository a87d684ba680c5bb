"""What the package of MOSES knows: statistics of its test sets, its training set, its filters.

The statistics are a pickle of 2020, and a pickle is a program. Its digest is checked, and its
reader knows five names, none of which can do more than make an array or a counter.
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

Tell = Callable[[str], None]
ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): codecs.encode,
    ("collections", "Counter"): Counter,
}
"""All that the published statistics name, and what it stands for today."""
CHECKED, SPARED = 200, 2
"""Molecules whose fingerprints are compared with the published ones, and how many may differ."""


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Look a name up among those that are allowed."""
        if (module, name) not in ALLOWED:
            raise ValueError(f"the statistics want to call {module}.{name}; they were not opened")
        return ALLOWED[module, name]


def unpickled(content: bytes) -> dict[str, Any]:
    """Read the one object of an .npz file that holds statistics."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive, archive.open("stats.npy") as file:
        npy.read_magic(file)
        npy.read_array_header_1_0(file)
        found: dict[str, Any] = _Reader(file).load().item()
    return found


def reference(split: str, cache: Path, *, tell: Tell = lambda _: None) -> Reference:
    """Return what is known of a test set; kept in the cache, as arrays, for this rdkit."""
    path = cache / "moses" / f"{split}-rdkit-{_rdkit()}.npz"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path, wait=True):
            if not path.is_file():
                tell(f"reading the published statistics of {split}")
                _write(path, _published(split, cache / "downloads", tell))
    return _read(path)


def _published(split: str, downloads: Path, tell: Tell) -> Reference:
    name = f"moses/dataset/data/{moses.PUBLISHED[split]}_stats.npz"
    stats = unpickled(moses.read(name, downloads, lambda what, *_: tell(what)))
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
    """Refuse an rdkit whose fingerprints are not those of the statistics.

    A handful in 100,000 differ because what counts as aromatic has changed since; that is let be.
    """
    places = range(0, len(smiles), max(1, len(smiles) // CHECKED))
    mols = [chemistry.molecule(smiles[i]) for i in places]
    pairs = zip(places, mols, strict=True)
    other = sum(m is None or bool((chemistry.fingerprint(m) != bits[i]).any()) for i, m in pairs)
    if other > SPARED:
        raise ValueError(
            f"rdkit {_rdkit()} makes other fingerprints than the published statistics have "
            f"({other} of {len(places)} differ); nothing can be compared with them"
        )


def _respelled(counts: Counter[str]) -> Counter[str]:
    """Spell parts as this rdkit does, so that they are found."""
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
        raise ValueError(f"{path} is damaged; delete it, and it is made again") from error
    return Reference(**fields)


ARRAYS = ("mean", "covariance", "fingerprints", "properties")
COUNTERS = ("fragments", "scaffolds")


def training(cache: Path, *, tell: Tell = lambda _: None) -> UInt64[np.ndarray, "n"]:
    """Return hashes of the published training molecules, sorted, as this rdkit spells them."""
    path = cache / "moses" / f"train-rdkit-{_rdkit()}.npy"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path, wait=True):
            if not path.is_file():
                tell("reading the training molecules")
                told = moses.published("train", cache / "downloads", lambda what, *_: tell(what))
                with whole(path) as part:
                    np.save(part, np.sort(hashes(map(as_spelled, (s.decode() for s in told)))))
    found: np.ndarray = np.load(path, allow_pickle=False)
    return found


OLD = re.compile(r"\[H\]|-[0-9]")
"""Where the spelling of 2020 may differ: hydrogens written out, rings closed by a single bond."""


def as_spelled(smiles: str) -> str:
    """Spell a published molecule as this rdkit does.

    The published spelling is still canonical but where rdkit's idea of it has changed since: in 36
    of the 176,074 test molecules, all of which the pattern finds.
    """
    return chemistry.respelled(smiles) if OLD.search(smiles) else smiles


def hashes(texts: Iterable[str]) -> UInt64[np.ndarray, "n"]:
    """Return 64 bits of a digest of every text."""
    digests = [hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts]
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


def filters(cache: Path, *, tell: Tell = lambda _: None) -> chemistry.Filters:
    """Return the published filters."""
    tables = (
        moses.read(f"moses/metrics/{name}.csv", cache / "downloads", lambda what, *_: tell(what))
        for name in ("mcf", "wehi_pains")
    )
    return chemistry.Filters.read(*tables)


def _rdkit() -> str:
    chemistry.rdkit("Chem")
    return version("rdkit")
