"""The texts of files of one's own: plain text, .jsonl and .parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from dsl.data.blocks import json_texts
from dsl.data.sources import Progress
from dsl.extras import require
from dsl.strict import cut, one_line, shown

Make = Callable[[Path, Progress], Iterable[bytes]]
"""Makes a corpus, piece by piece; the folder keeps downloads."""

READABLE = (".txt", ".jsonl", ".parquet")


def documents_of(paths: list[Path]) -> Make:
    """Make a corpus of the documents of files, one file after the other."""

    def make(_: Path, told: Progress) -> Iterator[bytes]:
        for number, path in enumerate(paths):
            told(f"reading {path.name}", number, len(paths))
            yield from _documents(path)

    return make


def _documents(path: Path) -> Iterator[bytes]:
    if path.suffix == ".jsonl":
        yield from (text.encode() for text in json_texts(path))
    elif path.suffix == ".parquet":
        for text in _column(path):
            if not isinstance(text, str | None):
                raise ValueError(f"{path} has a 'text' that is no text: {shown(text)}")
            if text:
                yield text.encode()
    else:
        yield path.read_bytes()


def _column(path: Path) -> Iterator[Any]:
    """Read the column "text" of a .parquet file; bad bytes can stop the library in any way."""
    parquet: Any = require("pyarrow.parquet", extra="data")
    try:
        with parquet.ParquetFile(path) as table:
            names = table.schema_arrow.names
            if "text" in names:
                for batch in table.iter_batches(1000, columns=["text"]):
                    yield from batch.column(0).to_pylist()
    except Exception as error:
        raise ValueError(f"{path} is not readable parquet: {one_line(error)}") from error
    if "text" not in names:
        raise ValueError(f"{path} has no column 'text', only {cut(str(names))}")


def one_text(path: Path) -> Make:
    """Make a corpus of a file that is one text."""

    def make(_: Path, told: Progress) -> Iterator[bytes]:
        size, done = path.stat().st_size, 0
        with path.open("rb") as file:
            while chunk := file.read(1 << 24):
                yield chunk
                done += len(chunk)
                told(f"reading {path.name}", done, size)

    return make


def readable(folder: Path) -> list[Path]:
    """List the files of a folder that can be read, in order."""
    return sorted(file for file in folder.iterdir() if file.suffix in READABLE)
