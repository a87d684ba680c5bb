"""An input format for `dsl correct`: one word per line, with its confidence.

the<TAB>0.98
histery<TAB>0.4
"""

from __future__ import annotations

from dsl.apps.correct import Format, Reading, Symbol

NAME = "word-lines"


def read(source: str) -> Reading:
    """Read the words; each character gets the confidence of its word."""
    symbols: list[Symbol] = []
    separators: list[int] = []
    begin = 0
    for number, line in enumerate(source.splitlines(keepends=True), start=1):
        word, tab, confidence = line.rstrip("\r\n").partition("\t")
        if not tab:
            raise ValueError(f"line {number}: expected word<TAB>confidence, got {line!r}")
        if symbols:  # the format implies a space between words, but the file does not spell it
            separators.append(len(symbols))
            symbols.append(Symbol(" ", symbols[-1].end, symbols[-1].end))
        for place, character in enumerate(word, start=begin):
            symbols.append(Symbol(character, place, place + 1, float(confidence)))
        begin += len(line)
    return Reading(source, symbols, NAME, frozenset(separators))


def escape(text: str) -> str:
    """Write a correction on one line, without tabs."""
    return " ".join(text.split())


def recognise(source: str, suffix: str) -> bool:
    """Recognise files by their suffix."""
    return suffix == ".words"


FORMAT = Format(NAME, "one word and its confidence per line", read, escape, recognise)
