"""The catalogue of corpora: where each comes from and how its bytes are made, piece by piece."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsl import oracle
from dsl.data import cleaning, sources
from dsl.data.sources import Progress
from dsl.extras import require
from dsl.streams import stream

TEXT8_ALPHABET = "abcdefghijklmnopqrstuvwxyz "

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


def recipe_of(name: str) -> Recipe:
    """Return how a corpus is made, or refuse a name that stands for none."""
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
        paths = readable(path)
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


def readable(folder: Path) -> list[Path]:
    """List the files of a folder that can be read, in order."""
    return sorted(file for file in folder.iterdir() if file.suffix in READABLE)


def names() -> list[str]:
    """List the corpora that have a name of their own."""
    own = ["cyclic-K", "markov-V", "a text, .jsonl or .parquet file", "a folder of such files"]
    return [*RECIPES, *own, "datasets:NAME"]
