"""Any text in 97 symbols: printable ASCII, a newline, and one symbol for everything else.

English needs no more, and with so few symbols a codebook of d = v - 1 makes all evidence exact.
"""

from __future__ import annotations

import unicodedata
from functools import cache

OTHER = "\N{REPLACEMENT CHARACTER}"
"""What stands for a character that has no likeness among the others."""
ENGLISH_ALPHABET = "\n" + "".join(map(chr, range(32, 127))) + OTHER

ALIKE = {
    "'": "\u2018\u2019\u201a\u201b\u2032\u2035\u2039\u203a\u02b9\u02bb\u02bc\u02bd\u00b4",
    '"': "\u201c\u201d\u201e\u201f\u2033\u2036\u00ab\u00bb",
    "-": "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u2043",
    "*": "\u2022\u2217",
    "/": "\u2044\u2215\u00f7",
    "\n": "\r\v\f\x85\u2028\u2029",
    " ": "\t\u1680\u180e",
    "x": "\u00d7",
    "~": "\u223c",
    "ss": "\u00df",
    "ae": "\u00e6",
    "AE": "\u00c6",
    "oe": "\u0153",
    "OE": "\u0152",
    "o": "\u00f8",
    "O": "\u00d8",
    "d": "\u0111\u00f0",
    "D": "\u0110\u00d0",
    "th": "\u00fe",
    "Th": "\u00de",
    "l": "\u0142",
    "L": "\u0141",
    "h": "\u0127",
    "H": "\u0126",
    "i": "\u0131",
}
"""What signs and letters are written as, where Unicode itself does not say it."""
TABLE = {ord(sign): likeness for likeness, signs in ALIKE.items() for sign in signs}
KNOWN = frozenset(ENGLISH_ALPHABET)
UNSEEN = ("Mn", "Cf")
"""Accents by themselves, joiners and other marks without width."""


def fold(text: str) -> str:
    """Write a text in the alphabet; what is in it already stays as it is.

    Curly quotes become straight, dashes hyphens, accents are dropped, ligatures and fractions are
    spelled; each character that is left becomes one OTHER.

    >>> fold("“naïve” — ½ 投")
    '"naive" - 1/2 �'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(folded, text.replace("\r\n", "\n")))


@cache
def folded(character: str) -> str:
    """Write one character in the alphabet: as itself, as its likeness, as nothing, or as OTHER."""
    if character in KNOWN:
        return character
    whole = unicodedata.normalize("NFKD", character.translate(TABLE)).translate(TABLE)
    parts = [part for part in whole if unicodedata.category(part) not in UNSEEN]
    return "".join(parts) if KNOWN.issuperset(parts) else OTHER
