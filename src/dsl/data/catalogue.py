"""The catalogue of corpora: their sources, and how their bytes are made, chunk by chunk."""

from __future__ import annotations

import codecs
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from dsl._util.config import cut, one_line, shown
from dsl._util.extras import require
from dsl._util.files import require_regular
from dsl._util.registry import Registry
from dsl.core import oracle
from dsl.core.streams import stream
from dsl.data import cleaning, english, sources
from dsl.data.blocks import json_texts
from dsl.data.cleaning import ENGLISH_ALPHABET
from dsl.data.sources import Progress

Make = Callable[[Path, Progress], Iterable[bytes]]
"""Makes a corpus chunk by chunk, given a directory for downloads and a progress callback."""

READABLE = (".txt", ".jsonl", ".parquet")


def documents_of(paths: list[Path]) -> Make:
    """Make a corpus from the documents in files."""

    def make(_: Path, progress: Progress) -> Iterator[bytes]:
        for number, path in enumerate(paths):
            progress(f"reading {path.name}", number, len(paths))
            yield from _documents(path)

    return make


def _documents(path: Path) -> Iterator[bytes]:
    if path.suffix == ".jsonl":
        yield from (text.encode() for text in json_texts(path))
    elif path.suffix == ".parquet":
        for text in _column(path):
            if not isinstance(text, str | None):
                raise ValueError(f"{path} has a 'text' that is not a string: {shown(text)}")
            if text:
                yield text.encode()
    else:
        yield b"".join(_checked_text(path, [path.read_bytes()]))


def _column(path: Path) -> Iterator[Any]:
    """Yield the column "text" of a .parquet file; the library may raise any exception."""
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
    """Make a corpus from a single text file."""

    def make(_: Path, progress: Progress) -> Iterator[bytes]:
        size, done = path.stat().st_size, 0
        with path.open("rb") as file:
            for chunk in _checked_text(path, iter(lambda: file.read(1 << 24), b"")):
                yield chunk
                done += len(chunk)
                progress(f"reading {path.name}", done, size)

    return make


def _checked_text(path: Path, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the chunks of a file; raise an error if they are not UTF-8 text."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for chunk in chunks:
            if b"\0" in chunk:
                raise ValueError(f"{path} must be text, got a zero byte")
            decoder.decode(chunk)
            yield chunk
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error.reason}") from error


def readable(folder: Path) -> list[Path]:
    """List the readable files of a folder, sorted."""
    found = sorted(file for file in folder.iterdir() if file.suffix in READABLE)
    for file in found:
        require_regular(file)
    return found


TEXT8_ALPHABET = "abcdefghijklmnopqrstuvwxyz "

Encoded = Callable[[Path], tuple[Tokenizer, Iterator[list[int]], dict[str, Any]]]


@dataclass(frozen=True)
class Origin:
    """The source of a corpus and how it is made."""

    make: Make
    held_out: int
    """Bytes of the test and of the validation split; each is at most a fifth of the text."""
    alphabet: str | None
    source: str
    licence: str
    size: int | None = None
    """The expected number of bytes."""
    documents: bool = False
    """Whether each chunk is a document."""
    encoded: Encoded | None = None
    """Returns the tokenizer, the tokens of every document, and facts about the corpus, if
    known."""
    splits: Mapping[str, int] | None = None
    """Published numbers of documents per split, in order."""


def _text8(downloads: Path, progress: Progress) -> Iterator[bytes]:
    yield sources.text8(downloads, progress)


def _text8_prefix(downloads: Path, progress: Progress) -> Iterator[bytes]:
    done = 0
    for number, part in enumerate(cleaning.wikipedia(sources.enwik8(downloads, progress))):
        yield part
        done += len(part)
        if number % 10_000 == 0:
            progress("cleaning", done, 74_090_640)


def _enwik8_prose(downloads: Path, progress: Progress) -> Iterator[bytes]:
    for number, page in enumerate(cleaning.articles(sources.enwik8(downloads, progress))):
        yield page
        if number % 100 == 0:
            progress("cleaning", number, 0)


def _python_docs(_: Path, progress: Progress) -> Iterator[bytes]:
    from pydoc_data.topics import topics

    progress("cleaning", 0, 0)
    yield cleaning.prose(" ".join(topics[name] for name in sorted(topics))).encode()


def _toy(first: str, truth: oracle.Oracle, n: int) -> Make:
    def make(_: Path, __: Progress) -> Iterator[bytes]:
        rows = truth.sample(n, generator=stream(0)).flatten().tolist()
        yield bytes(ord(first) + token for token in rows)

    return make


def _datasets(name: str) -> Make:
    """Stream a dataset from the hub or a folder; `NAME:CONFIG` selects a configuration."""

    def make(_: Path, progress: Progress) -> Iterator[bytes]:
        library: Any = require("datasets", extra="data")
        dataset, __, config = name.partition(":")
        if not dataset.strip("/. "):
            raise ValueError("datasets:NAME needs the name of a data set")
        try:
            rows = library.load_dataset(dataset, config or None, split="train", streaming=True)
            for number, row in enumerate(rows):
                if not isinstance(row.get("text"), str):
                    raise ValueError(f"data set {name!r} has no column 'text', only {list(row)}")
                yield row["text"].encode()
                if number % 1000 == 0:
                    progress("streaming documents", number, 0)
        except Exception as error:  # the library may raise any exception
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
    """Rotations of the first `size` letters."""
    return _drawn("cyclic", "A", size, lambda: _toy("A", oracle.cyclic(size), 4000), 500 * size)


def markov(size: int) -> Origin:
    """Texts of a Markov chain over the first `size` letters."""
    return _drawn("markov", "a", size, lambda: _toy("a", oracle.markov(size, 1000), 1000), 100_000)


def _drawn(name: str, first: str, size: int, make: Callable[[], Make], held_out: int) -> Origin:
    if not 2 <= size <= 26:
        raise ValueError(f"{name}-N needs N in 2 … 26, got {size}")
    alphabet = "".join(chr(ord(first) + i) for i in range(size))
    return Origin(make(), held_out, alphabet, "drawn from the exact toy", "none needed")


Numbered = Callable[..., Origin]
"""A function of N for a corpus `NAME-N`; N may have a default."""


def _checked(name: str, corpus: Origin | Numbered) -> Origin | Numbered:
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise ValueError(
            f"a corpus's name must have letters, digits, '.', '-' and '_', got {name!r}"
        )
    if not isinstance(corpus, Origin) and not callable(corpus):
        raise ValueError(f"the corpus {name!r} must be an Origin or a function of N: {corpus!r}")
    return corpus


CORPORA: Registry[Origin | Numbered] = Registry("dsl.corpora", "corpus", _checked)
"""All named corpora."""


def register(name: str, origin: Origin) -> None:
    """Register a corpus in this process; installed packages use an entry point instead.

    The cache uses the name, so a changed corpus needs a new name.
    """
    CORPORA.register(name, origin)


def origin_of(name: str) -> Origin:
    """Return the origin of a corpus, given its name, file or folder."""
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
    """Find a registered corpus by NAME or NAME-N."""
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
    """List the corpora that need no number."""
    return [n for n, c in CORPORA.items() if isinstance(c, Origin) or not _needs_number(c)]


def names() -> list[str]:
    """List the forms of a corpus name."""
    numbered = [f"{n}-N" for n, c in CORPORA.items() if not isinstance(c, Origin)]
    files = ["a text, .jsonl or .parquet file", "a folder of such files"]
    return [*corpora(), *numbered, *files, "datasets:NAME"]
