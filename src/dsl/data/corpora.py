"""Corpora in the cache: one text file each, with a JSON description.

A corpus is written atomically and chunk by chunk, so it may be larger than memory.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from dsl._util.files import digest_once, locked, parse_json, sweep, whole, write_text
from dsl.data.catalogue import CORPORA, Origin, origin_of, readable
from dsl.data.sources import Progress
from dsl.data.tokenizers import ends

DESCRIPTION = "corpus.json"
SPLITS = ("train", "validation", "test")
BETWEEN = b"\0"
"""The separator of documents."""


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
    """Number of documents, separated by zero bytes; None for a single text."""
    empty: int = 0
    """Number of empty documents that were left out."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Further facts, such as the entropy of a source that is a model."""

    def range(self, split: str) -> tuple[int, int]:
        """Return the byte range of a split."""
        if split not in self.splits:
            raise ValueError(
                f"corpus {self.name!r} has no split {split!r}; expected one of "
                f"{', '.join(self.splits)}"
            )
        return self.splits[split]

    def read(self, split: str, most: int | None = None) -> bytes:
        """Return the bytes of a split, at most `most`."""
        begin, end = self.range(split)
        with self.path.open("rb") as file:
            file.seek(begin)
            return file.read(end - begin if most is None else min(most, end - begin))

    def pieces(self, split: str, size: int) -> Iterator[bytes]:
        """Yield a split in chunks, cut only before a space, a newline or a separator."""
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
        """Return all characters that occur, sorted; the separator counts as a newline."""
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
    """Return a corpus from the cache, making it if it is not there.

    If another process is making it, wait for its result.
    """
    folder = cache / "corpora" / _key(name)
    description = folder / DESCRIPTION
    if not description.is_file():
        origin = origin_of(name)  # first, so that a wrong name creates no folder
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder, wait=True):
            if not description.is_file():
                _make(name, origin, folder, cache / "downloads", on_progress or (lambda *_: None))
    sweep(folder)
    return _load(description)


def _make(name: str, origin: Origin, folder: Path, downloads: Path, progress: Progress) -> None:
    """Write a corpus, then its description."""
    hasher, size, pieces, empty = hashlib.sha256(), 0, 0, 0
    begins = []
    path = folder / "corpus.txt"
    with whole(path) as part, part.open("wb") as file:
        for piece in origin.make(downloads, progress):
            begins.append(size + (origin.documents and pieces > 0))
            if origin.documents and not piece:
                empty += 1
                continue
            if origin.documents:
                piece = (BETWEEN if pieces else b"") + piece.replace(BETWEEN, b" ")
            file.write(piece)
            hasher.update(piece)
            size, pieces = size + len(piece), pieces + 1
        if not size:
            raise ValueError(f"corpus {name!r} is empty")
        if origin.size is not None and size != origin.size:
            raise ValueError(f"corpus {name!r} should have {origin.size} bytes, got {size}")
    corpus = Corpus(
        name,
        path,
        size,
        hasher.hexdigest(),
        _splits(origin, path, size),
        origin.alphabet,
        origin.source,
        origin.licence,
        pieces if origin.documents else None,
        empty,
    )
    if origin.encoded is not None:
        tokenizer, documents, facts = origin.encoded(downloads)
        write_tokens(corpus, tokenizer, documents, begins)
        corpus = replace(corpus, facts=facts)
    record = asdict(corpus) | {"path": path.name}
    write_text(folder / DESCRIPTION, json.dumps(record, indent=2))


def tokens_path(corpus: Corpus, split: str, tokenizer: Tokenizer) -> Path:
    """Return the file of the tokens of a split."""
    digest = hashlib.sha256(tokenizer.to_str().encode()).hexdigest()[:12]
    return corpus.path.parent / f"{split}-{digest}.tokens"


def record_tokens(path: Path) -> None:
    """Write the checksum of a token file beside it."""
    write_text(_record(path), digest_once(path))


def verify_tokens(path: Path) -> None:
    """Raise an error if a token file has changed; one of an early version is recorded first."""
    if not _record(path).is_file():
        record_tokens(path)
    wanted = _record(path).read_text(encoding="utf-8", errors="replace")
    if digest_once(path) != wanted:
        raise ValueError(
            f"{path} has changed since it was made (sha256 {digest_once(path)[:12]}…, expected "
            f"{wanted[:12]}…); delete {path.parent} and fetch it again"
        )


def _record(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def token_type(tokenizer: Tokenizer) -> type:
    """Return the integer type of token files."""
    return np.uint16 if tokenizer.get_vocab_size() <= 2**16 else np.uint32


def write_tokens(
    corpus: Corpus, tokenizer: Tokenizer, documents: Iterable[list[int]], begins: list[int]
) -> None:
    """Write the original tokens of documents, which encoding their text may not reproduce.

    A document belongs to the split that contains it, and is followed by its end token.
    """
    end = ends(tokenizer)[1]
    stops = [*(begin - 1 for begin in begins[1:]), corpus.size]
    rows: dict[str, list[np.ndarray]] = {split: [] for split in corpus.splits}
    for tokens, begin, stop in zip(documents, begins, stops, strict=True):
        for split, (first, last) in corpus.splits.items():
            if first <= begin < stop <= last:  # and not empty
                closed = tokens if tokens[-1:] == end else [*tokens, *end]
                rows[split].append(np.array(closed, token_type(tokenizer)))
    for split, found in rows.items():
        with whole(tokens_path(corpus, split, tokenizer)) as part, part.open("wb") as file:
            file.writelines(row.tobytes() for row in found)
        record_tokens(tokens_path(corpus, split, tokenizer))


def _key(name: str) -> str:
    """Return the folder name of a corpus; files are identified by path, size and time of change."""
    path = Path(name).expanduser()
    if name in CORPORA or not path.exists():
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
    """Raise an error if the bytes of a cached corpus have changed."""
    found = digest_once(corpus.path)
    if found != corpus.sha256:
        raise ValueError(
            f"{corpus.path} has changed since it was made (sha256 {found[:12]}…, expected "
            f"{corpus.sha256[:12]}…); delete {corpus.path.parent} and fetch it again"
        )


def _load(description: Path) -> Corpus:
    record = parse_json(description.read_bytes(), str(description))
    try:
        record["path"] = description.parent / record["path"]
        record["splits"] = {name: (begin, end) for name, (begin, end) in record["splits"].items()}
        corpus = Corpus(**record)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{description} was not written by this version; delete {description.parent} "
            "and fetch again"
        ) from error
    if not corpus.path.is_file() or corpus.path.stat().st_size != corpus.size:
        raise ValueError(f"{corpus.path} is damaged; delete {description.parent} and fetch again")
    verify(corpus)
    return corpus


def _splits(origin: Origin, path: Path, size: int) -> dict[str, tuple[int, int]]:
    """Hold out the last bytes; splits begin at a nearby document if there is one."""
    if origin.splits is not None:
        return _published(origin.splits, path, size)
    held = min(origin.held_out, size // 5)
    train, validation = size - 2 * held, size - held
    if origin.documents:
        (train, second), (validation, third) = (
            _between(path, place, held // 2) for place in (train, validation)
        )
    else:
        second, third = train, validation
    ranges = ((0, train), (second, validation), (third, size))
    return dict(zip(SPLITS, ranges, strict=True))


def _published(splits: Mapping[str, int], path: Path, size: int) -> dict[str, tuple[int, int]]:
    """Byte ranges of splits given as document counts; separators belong to no split."""
    stops = np.append(np.flatnonzero(np.memmap(path, np.uint8, "r") == BETWEEN[0]), size)
    if len(stops) != sum(splits.values()):
        raise ValueError(
            f"{path.name} should have {sum(splits.values())} documents, got {len(stops)}"
        )
    last = np.cumsum(list(splits.values())) - 1
    begins = [0, *(int(stops[i]) + 1 for i in last[:-1])]
    return {
        name: (begin, int(stops[i])) for name, begin, i in zip(splits, begins, last, strict=True)
    }


def _between(path: Path, place: int, most: int) -> tuple[int, int]:
    """Return the end of one split and the beginning of the next, at a separator if one is near."""
    with path.open("rb") as file:
        file.seek(place - most)
        near = file.read(2 * most)
    ends = {near.rfind(BETWEEN, 0, most), near.find(BETWEEN, most)} - {-1}
    if not ends:
        return place, place
    end = place - most + min(ends, key=lambda end: abs(end - most))
    return end, end + 1
