"""The registry of input formats of `dsl correct`, and format detection."""

from __future__ import annotations

from pathlib import Path

from dsl._util.registry import Registry
from dsl.apps.correct.formats.common import Format, decode
from dsl.apps.correct.reading import Reading

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
