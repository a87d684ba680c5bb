"""Bytes as text and back: UTF-8, or UTF-16 that says so."""

from __future__ import annotations

import codecs

MARKS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


def encoding(data: bytes) -> str:
    """Return the name of the encoding of a file; its text, encoded so, is the file again."""
    return MARKS.get(data[:2], "utf-8")


def decode(data: bytes, name: str) -> str:
    """Return the text of a file, with the mark that it may begin with.

    Raises:
        ValueError: that begins with the file's name, if it is not text.
    """
    kind = encoding(data)
    try:
        text = data.decode(kind)
    except UnicodeDecodeError as error:
        found = f"byte 0x{data[error.start]:02X} at {error.start}"
        raise ValueError(f"{name} is neither UTF-8 nor UTF-16: {found}") from error
    if "\0" in text:
        raise ValueError(f"{name} is not text: it holds a zero byte at {data.index(0)}")
    return text
