"""JSON whose strings know where they stand in the file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any

from dsl.correction.formats.places import place
from dsl.correction.formats.plain import MARK

SPACE = re.compile(r"[ \t\n\r]*")
UNIT = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|.", re.DOTALL
)
"""What spells one character of a string."""


@dataclass(frozen=True, slots=True)
class Spelled:
    """A string, and where its characters stand."""

    text: str
    begin: int
    """Behind the quotation mark that opens it."""
    end: int
    """Before the one that closes it."""

    def characters(self, source: str) -> Iterator[tuple[int, int, str]]:
        """Give where each character begins and ends in the file, and the character."""
        if self.end - self.begin == len(self.text):
            for at, character in enumerate(self.text, self.begin):
                yield at, at + 1, character
            return
        units = UNIT.finditer(source, self.begin, self.end)
        for unit, character in zip(units, self.text, strict=True):
            yield unit.start(), unit.end(), character


class _Decoder(json.JSONDecoder):
    """A decoder that keeps the places of strings; keys are strings without."""

    def __init__(self) -> None:
        super().__init__(parse_constant=_refuse)
        self.parse_string = _spelled
        self.scan_once = py_make_scanner(self)  # the one in C knows no other strings than its own


def parse(source: str) -> Any:
    """Read JSON; its strings are `Spelled`.

    Raises:
        ValueError: that says in one line what is wrong and where.
    """
    begin = SPACE.match(source, len(MARK) if source.startswith(MARK) else 0)
    assert begin is not None
    try:
        found, end = _Decoder().raw_decode(source, begin.end())
    except RecursionError as error:
        raise ValueError("not JSON: nested too deeply") from error
    except JSONDecodeError as error:
        where = place(source, min(error.pos, len(source)))
        raise ValueError(f"not JSON: {error.msg} at {where}") from error
    rest = SPACE.match(source, end)
    assert rest is not None
    if rest.end() < len(source):
        raise ValueError(f"not JSON: something follows at {place(source, rest.end())}")
    return found


def _spelled(source: str, begin: int, strict: bool) -> tuple[Spelled, int]:
    text, end = scanstring(source, begin, strict)
    if end - 1 - begin > len(text) and any("\ud800" <= c <= "\udfff" for c in text):
        raise ValueError(f"half of a character in the string at {place(source, begin)}")
    return Spelled(text, begin, end - 1), end


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")
