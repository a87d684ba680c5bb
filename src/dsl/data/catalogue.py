"""The catalogue of corpora: where each comes from and how its bytes are made, piece by piece."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from dsl._util.config import cut, one_line, shown
from dsl._util.extras import require
from dsl._util.registry import Registry
from dsl.core import oracle
from dsl.core.streams import stream
from dsl.data import cleaning, english, sources
from dsl.data.blocks import json_texts
from dsl.data.cleaning import ENGLISH_ALPHABET
from dsl.data.sources import Progress

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


TEXT8_ALPHABET = "abcdefghijklmnopqrstuvwxyz "

Encoded = Callable[[Path], tuple[Tokenizer, Iterator[list[int]], dict[str, Any]]]


@dataclass(frozen=True)
class Origin:
    """Where a corpus comes from, and how it is made."""

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
    encoded: Encoded | None = None
    """The tokens of every document and the tokenizer they are of, where they are known; and what
    else is known of the corpus."""
    splits: Mapping[str, int] | None = None
    """How many documents each split has, one split after the other, if that is published."""


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


def _datasets(name: str) -> Make:
    """Stream a data set of the hub, or of a local folder; `NAME:CONFIG` chooses a configuration."""

    def make(_: Path, told: Progress) -> Iterator[bytes]:
        library: Any = require("datasets", extra="data")
        dataset, __, config = name.partition(":")
        if not dataset.strip("/. "):
            raise ValueError("a data set has a name, as in datasets:NAME")
        try:
            rows = library.load_dataset(dataset, config or None, split="train", streaming=True)
            for number, row in enumerate(rows):
                if not isinstance(row.get("text"), str):
                    raise ValueError(f"data set {name!r} has no column 'text', only {list(row)}")
                yield row["text"].encode()
                if number % 1000 == 0:
                    told("streaming documents", number, 0)
        except Exception as error:  # of a name that suits it not, the library raises anything
            if isinstance(error, ValueError):
                raise
            raise OSError(f"data set {name!r} could not be streamed: {error}") from error

    return make


TEXT8 = Origin(
    _text8,
    5_000_000,
    TEXT8_ALPHABET,
    "the official text8 archive",
    "Wikipedia, CC BY-SA",
    size=100_000_000,
)
TEXT8_PREFIX = Origin(
    _text8_prefix,
    4_000_000,
    TEXT8_ALPHABET,
    "enwik8, cleaned by the published text8 rules: the first 74% of text8",
    "Wikipedia, CC BY-SA",
    size=74_090_640,
)
ENWIK8_PROSE = Origin(
    _enwik8_prose,
    3_000_000,
    None,
    "enwik8, the running text of its articles with case and punctuation",
    "Wikipedia, CC BY-SA",
    documents=True,
)
ENGLISH = Origin(
    english.documents,
    2_000_000,
    ENGLISH_ALPHABET,
    "enwik8's paragraphs, presidents' annual messages since 1900 and the World English Bible, "
    "in 97 symbols",
    "Wikipedia: CC BY-SA; the others: public domain",
    documents=True,
)
PYTHON_DOCS = Origin(
    _python_docs,
    40_000,
    TEXT8_ALPHABET,
    "the help texts that every CPython carries, cleaned like text8",
    "Python Software Foundation Licence",
)


def cyclic(size: int) -> Origin:
    """The rotations of the first letters of the alphabet."""
    return _drawn("cyclic", "A", size, lambda: _toy("A", oracle.cyclic(size), 4000), 500 * size)


def markov(size: int) -> Origin:
    """Texts of a Markov chain over the first letters of the alphabet."""
    return _drawn("markov", "a", size, lambda: _toy("a", oracle.markov(size, 1000), 1000), 100_000)


def _drawn(name: str, first: str, size: int, make: Callable[[], Make], held_out: int) -> Origin:
    if not 2 <= size <= 26:
        raise ValueError(f"{name} toys have 2 to 26 letters, got {size}")
    alphabet = "".join(chr(ord(first) + i) for i in range(size))
    return Origin(make(), held_out, alphabet, "drawn from the exact toy", "none needed")


Numbered = Callable[..., Origin]
"""A corpus with a size in its name: a function of N, or of nothing if N has a default."""


def _checked(name: str, corpus: Origin | Numbered) -> Origin | Numbered:
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise ValueError(f"a corpus's name has letters, digits, '.', '-' and '_', got {name!r}")
    if not isinstance(corpus, Origin) and not callable(corpus):
        raise ValueError(f"the corpus {name!r} must be an Origin or a function of N: {corpus!r}")
    return corpus


CORPORA: Registry[Origin | Numbered] = Registry("dsl.corpora", "corpus", _checked)
"""Every corpus that has a name."""


def register(name: str, origin: Origin) -> None:
    """Name a corpus for this process; an installed package uses an entry point instead.

    The cache keeps a corpus under its name, so a changed corpus needs another name.
    """
    CORPORA.register(name, origin)


def origin_of(name: str) -> Origin:
    """Return how a corpus is made, or list the names there are."""
    if (named := _named(name)) is not None:
        return named
    if name.startswith("datasets:"):
        make = _datasets(name.removeprefix("datasets:"))
        return Origin(make, 10_000_000, None, name, "the data set's own", documents=True)
    path = Path(name).expanduser()
    if path.is_dir():
        paths = readable(path)
        if not paths:
            raise ValueError(f"{path} has no {', '.join(READABLE)} file")
        make, documents = documents_of(paths), True
    elif path.is_file():
        documents = path.suffix in (".jsonl", ".parquet")
        make = documents_of([path]) if documents else one_text(path)
        paths = [path]
    else:
        raise ValueError(f"unknown corpus {name!r}; expected one of {', '.join(names())}")
    held = sum(file.stat().st_size for file in paths) // 20
    return Origin(make, held, None, str(path.name), "the user's own", documents=documents)


def _named(name: str) -> Origin | None:
    """Find a registered corpus: by its name, or by its name and a number."""
    if name in CORPORA:
        found = CORPORA[name]
        if isinstance(found, Origin):
            return found
        if _needs_number(found):
            return None
        return found()
    match = re.fullmatch(r"(.+)-([0-9]{1,9})", name)
    if match and match[1] in CORPORA and not isinstance(found := CORPORA[match[1]], Origin):
        return found(int(match[2]))
    return None


def _needs_number(corpus: Numbered) -> bool:
    (number,) = inspect.signature(corpus).parameters.values()
    return number.default is inspect.Parameter.empty


def corpora() -> list[str]:
    """List the corpora that can be prepared by their name alone."""
    return [n for n, c in CORPORA.items() if isinstance(c, Origin) or not _needs_number(c)]


def names() -> list[str]:
    """List how a corpus can be named."""
    numbered = [f"{n}-N" for n, c in CORPORA.items() if not isinstance(c, Origin)]
    files = ["a text, .jsonl or .parquet file", "a folder of such files"]
    return [*corpora(), *numbered, *files, "datasets:NAME"]
