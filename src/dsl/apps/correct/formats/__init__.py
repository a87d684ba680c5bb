"""Input formats of `dsl correct`: the registry, format detection, and shared helpers."""

from __future__ import annotations

import codecs
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dsl._util.registry import Registry
from dsl.apps.correct.reading import UNSAID, Alternatives, Characters, Reading

MARKS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


def encoding(data: bytes) -> str:
    """Return the encoding of a file; decoding and encoding it gives the same bytes."""
    return MARKS.get(data[:2], "utf-8")


def decode(data: bytes, name: str) -> str:
    """Decode a file; a byte order mark is kept.

    Raises:
        ValueError: If the file is not text; the message starts with its name.
    """
    kind = encoding(data)
    try:
        text = data.decode(kind)
    except UnicodeDecodeError as error:
        found = f"byte 0x{data[error.start]:02X} at {error.start}"
        raise ValueError(f"{name} is neither UTF-8 nor UTF-16: {found}") from error
    if "\0" in text:
        raise ValueError(f"{name} is not text: it has a zero byte at {data.index(0)}")
    return text


def places(source: str, offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield line and column of sorted offsets, in one pass."""
    line, begin, done = 1, 0, 0
    for offset in offsets:
        assert offset >= done, "offsets come in order"
        line += source.count("\n", done, offset)
        begin = max(begin, source.rfind("\n", done, offset) + 1)
        done = offset
        yield line, offset - begin + 1


def place(source: str, offset: int) -> str:
    """Format the line and column of an offset."""
    line, column = next(places(source, [offset]))
    return f"line {line}, column {column}"


def shown(text: str) -> str:
    """Quote and shorten a text for a message."""
    return repr(text if len(text) <= 40 else f"{text[:40]}…")


def percent(written: str, name: str) -> float:
    """Convert a confidence of 0 … 100 to a probability; errors call it `name`."""
    try:
        number = float(written)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 100:
        raise ValueError(f"{name} must lie in 0 … 100, got {shown(written)}")
    return number / 100


BLANK = "_"
"""Placeholder for a gap in the column of characters."""


@dataclass
class Transcript:
    """Builder of a reading."""

    source: str
    kind: str
    text: list[str] = field(default_factory=list)
    begins: array[int] = field(default_factory=lambda: array("q"))
    ends: array[int] = field(default_factory=lambda: array("q"))
    confidences: array[float] = field(default_factory=lambda: array("d"))
    alternatives: dict[int, Alternatives] = field(default_factory=dict)
    gaps: set[int] = field(default_factory=set)
    separators: set[int] = field(default_factory=set)
    scale: str = ""

    def add(
        self,
        text: str,
        begin: int,
        end: int,
        confidence: float | None = None,
        alternatives: Alternatives = (),
    ) -> None:
        """Add a character, or a gap if the text is empty."""
        if not text:
            self.gaps.add(len(self.text))
        if alternatives:
            self.alternatives[len(self.text)] = tuple(alternatives)
        self.text.append(text or BLANK)
        self.begins.append(begin)
        self.ends.append(end)
        self.confidences.append(UNSAID if confidence is None else confidence)

    def separate(self, text: str) -> None:
        """Add a separator that the format implies, except at the start of the text."""
        if not self.text:
            return
        for character in text:
            self.separators.add(len(self.text))
            self.add(character, self.ends[-1], self.ends[-1])

    def reading(self) -> Reading:
        """Return the reading."""
        symbols = Characters(
            "".join(self.text), self.begins, self.ends, self.confidences, self.alternatives,
            frozenset(self.gaps),
        )  # fmt: skip
        return Reading(self.source, symbols, self.kind, frozenset(self.separators), self.scale)


@dataclass(frozen=True)
class Format:
    """A file format for text with confidences."""

    name: str
    summary: str
    read: Callable[[str], Reading]
    escape: Callable[[str], str]
    """Escapes text for a file of this format."""
    recognise: Callable[[str, str], bool]
    """Whether content or suffix (`.tsv`) are those of this format."""
    priority: int = 0
    """Formats of a higher priority are tried first. Plain text is the last, at -100."""


FORMATS: Registry[Format] = Registry("dsl.formats", "format")
"""All installed formats."""


def ordered() -> list[Format]:
    """List the formats in the order in which they are tried."""
    return sorted(FORMATS.values(), key=lambda each: -each.priority)


def recognised(source: str, suffix: str = "") -> Format:
    """Detect the format of a file by its content, then by its suffix."""
    by_text = (each for each in ordered() if each.recognise(source, ""))
    by_suffix = (each for each in ordered() if each.recognise("", suffix.lower()))
    return next(by_text, None) or next(by_suffix, FORMATS["plain"])


def read_file(path: Path | None, data: bytes, kind: str | None = None) -> Reading:
    """Read a file of any format.

    Args:
        path: The path of the file; None for standard input.
        data: The bytes of the file.
        kind: The name of the format; detected by default.

    Raises:
        ValueError: If the file is invalid; the message starts with its name.
    """
    name = "standard input" if path is None else str(path)
    source = decode(data, name)
    suffix = "" if path is None else path.suffix
    chosen = recognised(source, suffix) if kind is None else FORMATS.find(kind, "the format")
    try:
        return chosen.read(source)
    except ValueError as error:
        raise ValueError(f"{name} as {chosen.name}: {error}") from error
