"""The formats that `dsl correct` reads, by name, and how one is told from another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dsl.correction.formats import hocr, inline, plain, tsv, words
from dsl.correction.formats.encoding import decode
from dsl.correction.reading import Reading


@dataclass(frozen=True)
class Format:
    """A way to write doubtful text."""

    name: str
    summary: str
    read: Callable[[str], Reading]
    escape: Callable[[str], str]
    """Writes text as it stands in a file of this format."""
    recognise: Callable[[str, str], bool]
    """Whether a file is of this format, by its text and by how its name ends (`.tsv`)."""


PLAIN = Format(plain.NAME, "text without confidences", plain.read, plain.escape, plain.recognise)
FORMATS = {
    each.name: each
    for each in (
        Format(hocr.NAME, "a page of Tesseract's hOCR", hocr.read, hocr.escape, hocr.recognise),
        Format(tsv.NAME, "a table of Tesseract's words", tsv.read, tsv.escape, tsv.recognise),
        Format(
            words.NAME, "words or characters in JSON", words.read, words.escape, words.recognise
        ),
        Format(inline.NAME, "text with {word|0.6}", inline.read, inline.escape, inline.recognise),
        PLAIN,
    )
}
"""In the order in which they are tried: the most particular first."""


def by_name(name: str) -> Format:
    """Return a format, or say which there are."""
    if name not in FORMATS:
        raise ValueError(f"the format must be one of {', '.join(FORMATS)}; got {name[:60]!r}")
    return FORMATS[name]


def recognised(source: str, suffix: str = "") -> Format:
    """Find the format of a file: what it says counts first, then how its name ends."""
    by_text = (each for each in FORMATS.values() if each.recognise(source, ""))
    by_suffix = (each for each in FORMATS.values() if each.recognise("", suffix.lower()))
    return next(by_text, None) or next(by_suffix, PLAIN)


def read_file(path: Path | None, data: bytes, kind: str | None = None) -> Reading:
    """Read a file of any format.

    Args:
        path: Where it came from; None for standard input.
        data: Its bytes.
        kind: The name of its format, if that shall not be guessed.

    Raises:
        ValueError: that begins with the file's name and says in one line what is wrong.
    """
    name = "standard input" if path is None else str(path)
    source = decode(data, name)
    suffix = "" if path is None else path.suffix
    chosen = recognised(source, suffix) if kind is None else by_name(kind)
    try:
        return chosen.read(source)
    except ValueError as error:
        raise ValueError(f"{name} as {chosen.name}: {error}") from error
