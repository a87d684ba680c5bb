"""Corpora by name: fetched, verified, cleaned and cached as one text file each, with a description.

A corpus appears in the cache whole or not at all, and is written piece by piece, so that it may be
larger than memory.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from dsl.data.catalogue import RECIPES, Recipe, readable, recipe_of
from dsl.data.sources import Progress

BETWEEN = b"\0"
"""What stands between two documents of a corpus that has them."""


@dataclass(frozen=True)
class Corpus:
    """A corpus in the cache."""

    name: str
    path: Path
    size: int
    """In bytes."""
    sha256: str
    splits: dict[str, tuple[int, int]]
    """Byte ranges of the file, by name."""
    alphabet: str | None
    source: str
    licence: str
    documents: int | None = None
    """How many there are, with a zero byte between two; None if the text is one."""

    def range(self, split: str) -> tuple[int, int]:
        """Return the byte range of a split."""
        if split not in self.splits:
            raise ValueError(
                f"corpus {self.name!r} has no split {split!r}; expected one of "
                f"{', '.join(self.splits)}"
            )
        return self.splits[split]

    def read(self, split: str, most: int | None = None) -> bytes:
        """Return the bytes of a split, or the first of them."""
        begin, end = self.range(split)
        with self.path.open("rb") as file:
            file.seek(begin)
            return file.read(end - begin if most is None else min(most, end - begin))

    def pieces(self, split: str, size: int) -> Iterator[bytes]:
        """Read a split piece by piece, cut only before a space, a newline or a document's end."""
        begin, end = self.range(split)
        rest = b""
        with self.path.open("rb") as file:
            file.seek(begin)
            while begin < end:
                chunk = file.read(min(size, end - begin))
                begin += len(chunk)
                rest += chunk
                cut = max(rest.rfind(b" "), rest.rfind(b"\n"), rest.rfind(BETWEEN))
                if cut > 0 and begin < end:
                    yield rest[:cut]
                    rest = rest[cut:]
        if rest:
            yield rest

    def characters(self) -> str:
        """Return every character that occurs, in the order of their code points.

        The end of a document counts as a newline.
        """
        found: set[str] = set()
        with self.path.open(encoding="utf-8", newline="") as file:
            try:
                while chunk := file.read(1 << 22):
                    found |= set(chunk)
            except UnicodeDecodeError as error:
                raise ValueError(f"corpus {self.name!r} is not UTF-8 text: {error}") from error
        if self.documents is not None:
            found = found - {BETWEEN.decode()} | {"\n"}
        return "".join(sorted(found))


def prepare(name: str, cache: Path, *, on_progress: Progress | None = None) -> Corpus:
    """Return a corpus from the cache, making it first if it is not there."""
    told = on_progress or (lambda *_: None)
    folder = cache / "corpora" / _key(name)
    description = folder / "corpus.json"
    if description.is_file():
        return _load(description)
    recipe = recipe_of(name)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "corpus.txt"
    digest, size, pieces = hashlib.sha256(), 0, 0
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".part", delete=False) as part:
        try:
            for piece in recipe.make(cache / "downloads", told):
                if recipe.documents:
                    piece = (BETWEEN if pieces else b"") + piece.replace(BETWEEN, b" ")
                part.write(piece)
                digest.update(piece)
                size, pieces = size + len(piece), pieces + 1
            if not size:
                raise ValueError(f"corpus {name!r} is empty")
            if recipe.size is not None and size != recipe.size:
                raise ValueError(f"corpus {name!r} should have {recipe.size} bytes, got {size}")
        except BaseException:
            os.unlink(part.name)
            raise
    os.replace(part.name, path)
    corpus = Corpus(
        name,
        path,
        size,
        digest.hexdigest(),
        _splits(recipe, size),
        recipe.alphabet,
        recipe.source,
        recipe.licence,
        pieces if recipe.documents else None,
    )
    record = json.dumps(asdict(corpus) | {"path": path.name}, indent=2)
    beside = description.with_suffix(".part")
    beside.write_text(record, encoding="utf-8")
    os.replace(beside, description)
    return corpus


def _key(name: str) -> str:
    """Name a corpus's folder; files of the user's own by their path, size and time of change."""
    path = Path(name).expanduser()
    if name in RECIPES or not path.exists():
        plain = re.fullmatch(r"[\w.-]+", name)
        identity = "" if plain else name
    else:
        files = readable(path) if path.is_dir() else [path]
        stats = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        identity = f"{path.resolve()} {stats}"
    label = re.sub(r"[^\w.-]", "_", path.name or name)
    digest = hashlib.sha256(identity.encode()).hexdigest()[:12]
    return f"{label}-{digest}" if identity else label


def verify(corpus: Corpus) -> None:
    """Refuse a cached corpus whose bytes have changed."""
    with corpus.path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != corpus.sha256:
        raise ValueError(
            f"{corpus.path} has changed since it was made (sha256 {digest[:12]}…, expected "
            f"{corpus.sha256[:12]}…); delete {corpus.path.parent} and fetch it again"
        )


def _load(description: Path) -> Corpus:
    record = json.loads(description.read_text(encoding="utf-8"))
    try:
        record["path"] = description.parent / record["path"]
        record["splits"] = {name: (begin, end) for name, (begin, end) in record["splits"].items()}
        corpus = Corpus(**record)
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{description} was not written by this version; delete {description.parent} "
            "and fetch again"
        ) from error
    if not corpus.path.is_file() or corpus.path.stat().st_size != corpus.size:
        raise ValueError(f"{corpus.path} is damaged; delete {description.parent} and fetch again")
    return corpus


def _splits(recipe: Recipe, size: int) -> dict[str, tuple[int, int]]:
    held = min(recipe.held_out, size // 5)
    train, validation = size - 2 * held, size - held
    return {"train": (0, train), "validation": (train, validation), "test": (validation, size)}
