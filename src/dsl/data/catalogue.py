"""The catalogue of corpora: where each comes from and how its bytes are made, piece by piece."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from dsl import oracle
from dsl.data import benzenes, cleaning, english, moses, sources, stories
from dsl.data.folding import ENGLISH_ALPHABET
from dsl.data.own_files import READABLE, Make, documents_of, one_text, readable
from dsl.data.sources import Progress
from dsl.extras import require
from dsl.streams import stream

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


ORIGINS = {
    "text8": Origin(
        _text8,
        5_000_000,
        TEXT8_ALPHABET,
        "the official text8 archive",
        "Wikipedia, CC BY-SA",
        size=100_000_000,
    ),
    "text8-prefix": Origin(
        _text8_prefix,
        4_000_000,
        TEXT8_ALPHABET,
        "enwik8, cleaned by the published text8 rules: the first 74% of text8",
        "Wikipedia, CC BY-SA",
        size=74_090_640,
    ),
    "enwik8-prose": Origin(
        _enwik8_prose,
        3_000_000,
        None,
        "enwik8, the running text of its articles with case and punctuation",
        "Wikipedia, CC BY-SA",
        documents=True,
    ),
    "english": Origin(
        english.documents,
        2_000_000,
        ENGLISH_ALPHABET,
        "enwik8's paragraphs, presidents' annual messages since 1900 and the World English Bible, "
        "in 97 symbols",
        "Wikipedia: CC BY-SA; the others: public domain",
        documents=True,
    ),
    "python-docs": Origin(
        _python_docs,
        40_000,
        TEXT8_ALPHABET,
        "the help texts that every CPython carries, cleaned like text8",
        "Python Software Foundation Licence",
    ),
    "benzenes": Origin(
        benzenes.molecules,
        4_000,
        None,
        "computed: benzene with two groups, 1,200 SMILES",
        "none needed",
        documents=True,
    ),
    "moses": Origin(
        moses.molecules,
        0,
        None,
        "MOSES: SMILES of drug-like molecules with its published splits, out of its package",
        "MIT",
        documents=True,
        splits=moses.SPLITS,
    ),
}


def _stories(n: int) -> Origin:
    return Origin(
        partial(stories.documents, n),
        800_000,
        None,
        f"{n:,} stories drawn from stories15M, a llama trained on TinyStories",
        "the teacher's package: MIT; TinyStories: CDLA-Sharing-1.0",
        documents=True,
        encoded=partial(stories.facts, n),
    )


ORIGINS["stories"] = _stories(stories.STORIES)


def register(name: str, origin: Origin) -> None:
    """Give a corpus of one's own a name: `register("mine", origin_of("texts/"))`.

    The cache keeps it by that name, so another origin needs another one.
    """
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise ValueError(f"a corpus's name has letters, digits, '.', '-' and '_', got {name!r}")
    if name in ORIGINS:
        raise ValueError(f"there is a corpus {name!r} already; choose another name")
    ORIGINS[name] = origin


def origin_of(name: str) -> Origin:
    """Return how a corpus is made, or refuse a name that stands for none."""
    if name in ORIGINS:
        return ORIGINS[name]
    if match := re.fullmatch(r"(cyclic|markov)-([0-9]{1,9})", name):
        size = int(match[2])
        if not 2 <= size <= 26:
            raise ValueError(f"{match[1]} toys have 2 to 26 letters, got {size}")
        if match[1] == "cyclic":
            first, held, make = "A", 500 * size, _toy("A", oracle.cyclic(size), 4000)
        else:
            first, held, make = "a", 100_000, _toy("a", oracle.markov(size, 1000), 1000)
        alphabet = "".join(chr(ord(first) + i) for i in range(size))
        return Origin(make, held, alphabet, "drawn from the exact toy", "none needed")
    if match := re.fullmatch(r"stories-([0-9]{1,9})", name):
        n = int(match[1])
        if not 10 <= n <= 10_000_000:
            raise ValueError(f"stories-N needs N in 10 … 10,000,000, got {n}")
        return _stories(n)
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


def names() -> list[str]:
    """List the corpora that have a name of their own."""
    own = [
        "stories-N",
        "cyclic-K",
        "markov-V",
        "a text, .jsonl or .parquet file",
        "a folder of such files",
    ]
    return [*ORIGINS, *own, "datasets:NAME"]
