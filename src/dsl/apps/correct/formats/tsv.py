"""Tesseract's TSV: a table of boxes; rows of level 5 are words with confidences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dsl.apps.correct.formats import Format, Transcript, percent, place, shown
from dsl.apps.correct.formats.plain import MARK
from dsl.apps.correct.reading import Reading
from dsl.apps.correct.trust import WORDS

NAME = "tsv"
SUFFIXES = frozenset({".tsv"})
COLUMNS = ("level", "page_num", "block_num", "par_num", "line_num", "word_num",
           "left", "top", "width", "height", "conf", "text")  # fmt: skip
HEADER = "\t".join(COLUMNS)
CONFIDENCE, TEXT = COLUMNS.index("conf"), COLUMNS.index("text")
WORD = "5"
"""The level of a word."""
BOX = re.compile(r"-1(\.0*)?")
"""The confidence of a row without text."""
NO_BREAKS = str.maketrans("\t\n\r", "   ")


def read(source: str) -> Reading:
    """Read the words of a table; line breaks and paragraphs follow from their numbers."""
    first, *rows = _lines(source)
    if first[1].removeprefix(MARK) != HEADER:
        raise ValueError(f"expected the columns {' '.join(COLUMNS)}, got {shown(first[1])}")
    found, before = Transcript(source, NAME, scale=WORDS), [""] * len(COLUMNS)
    for begin, row in rows:
        cells = row.split("\t", TEXT)
        if len(cells) < TEXT:  # the last column is missing where there is no text
            raise ValueError(
                f"{place(source, begin)}: expected {len(COLUMNS)} columns, got {len(cells)}"
            )
        text = cells[TEXT] if len(cells) > TEXT else ""
        if cells[0] != WORD or not text.strip() or BOX.fullmatch(cells[CONFIDENCE]):
            continue
        found.separate(_between(before, cells))
        _add(found, begin + len(row) - len(text), text, cells[CONFIDENCE])
        before = cells
    return found.reading()


def escape(text: str) -> str:
    """Replace tabs and line breaks, which a cell cannot hold, by spaces."""
    return text.translate(NO_BREAKS)


def recognise(source: str, suffix: str) -> bool:
    """Whether the content begins with Tesseract's columns, or the suffix is .tsv."""
    return suffix in SUFFIXES or source.removeprefix(MARK).startswith(HEADER)


def _lines(source: str) -> Iterator[tuple[int, str]]:
    """Yield the start of each line, and the line without its end."""
    begin = 0
    for line in source.split("\n"):
        if line or not begin:
            yield begin, line.removesuffix("\r")
        begin += len(line) + 1


def _between(before: Sequence[str], cells: Sequence[str]) -> str:
    """Return the separator of two words: a space, a line break, or a blank line."""
    if before[1:4] != cells[1:4]:
        return "\n\n"
    return "\n" if before[4] != cells[4] else " "


def _add(found: Transcript, begin: int, text: str, written: str) -> None:
    try:
        confidence = percent(written, f"the confidence of {shown(text)}")
    except ValueError as error:
        raise ValueError(f"{place(found.source, begin)}: {error}") from error
    for at, character in enumerate(text, begin):
        found.add(character, at, at + 1, confidence)


FORMAT = Format(NAME, "a table of Tesseract's words", read, escape, recognise, 30)
