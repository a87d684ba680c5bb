"""Clean text: Wikipedia markup by the text8 rules or as prose, and folding into ASCII."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterator
from functools import cache

OTHER = "\N{REPLACEMENT CHARACTER}"
"""Stands for a character without an ASCII equivalent."""
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
"""Replacements that Unicode normalisation does not give."""
TABLE = {ord(sign): likeness for likeness, signs in ALIKE.items() for sign in signs}
KNOWN = frozenset(ENGLISH_ALPHABET)
UNSEEN = ("Mn", "Cf")
"""Unicode categories without width, such as combining accents and joiners."""


def fold(text: str) -> str:
    """Map a text to the alphabet of 97 symbols.

    Curly quotes become straight, dashes become hyphens, accents are dropped, ligatures and
    fractions are spelled out, and every other character becomes OTHER.

    >>> fold("“naïve” — ½ 投")
    '"naive" - 1/2 �'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(folded, text.replace("\r\n", "\n")))


@cache
def folded(character: str) -> str:
    """Map one character to the alphabet: to itself, an equivalent, nothing, or OTHER."""
    if character in KNOWN:
        return character
    whole = unicodedata.normalize("NFKD", character.translate(TABLE)).translate(TABLE)
    parts = [part for part in whole if unicodedata.category(part) not in UNSEEN]
    return "".join(parts) if KNOWN.issuperset(parts) else OTHER


DIGITS = (b"zero", b"one", b"two", b"three", b"four", b"five", b"six", b"seven", b"eight", b"nine")

# Replacements inside a page, in this order.
MARKUP = [
    (re.compile(rb"<.*>"), b""),  # XML tags of the dump
    (re.compile(rb"&amp;"), b"&"),
    (re.compile(rb"&lt;"), b"<"),
    (re.compile(rb"&gt;"), b">"),
    (re.compile(rb"<ref[^<]*</ref>"), b""),  # references
    (re.compile(rb"<[^>]*>"), b""),  # HTML tags
    (re.compile(rb"\[http:[^\] ]*"), b"["),  # addresses, their captions kept
    (re.compile(rb"\|thumb", re.I), b""),  # image options
    (re.compile(rb"\|left", re.I), b""),
    (re.compile(rb"\|right", re.I), b""),
    (re.compile(rb"\|\d+px", re.I), b""),
    (re.compile(rb"\[\[image:[^\[\]]*\|", re.I), b""),
    (re.compile(rb"\[\[category:([^|\]]*)[^\]]*\]\]", re.I), rb"[[\1]]"),
    (re.compile(rb"\[\[[a-z\-]*:[^\]]*\]\]"), b""),  # other languages
    (re.compile(rb"\[\[[^|\]]*\|"), b"[["),  # link targets, their captions kept
    (re.compile(rb"\{\{[^}]*\}\}"), b""),  # templates
    (re.compile(rb"\{[^}]*\}"), b""),  # tables
    (re.compile(rb"\["), b""),
    (re.compile(rb"\]"), b""),
    (re.compile(rb"&[^;]*;"), b" "),  # entities
]
FIRST_ONLY = 1  # a record has one XML tag of the dump
NOT_LETTERS = re.compile(rb"[^a-z]+")


def letters(text: bytes) -> bytes:
    """Lower-case a text, spell digits, and replace runs of other characters by one space."""
    lowered = text.lower()  # bytes: only A to Z
    for digit, word in enumerate(DIGITS):
        lowered = lowered.replace(b"%d" % digit, b" " + word + b" ")
    return NOT_LETTERS.sub(b" ", lowered)


def wikipedia(dump: bytes) -> Iterator[bytes]:
    """Clean a Wikipedia dump by the text8 rules: text of pages, without redirects and markup.

    The rules apply to records that end in ">", not to lines, so templates and tables may span
    lines.
    """
    inside = False
    for record in records(dump):
        if b"<text " in record:
            inside = True
        if b"#redirect" in record.lower():
            inside = False
        if not inside:
            continue
        if b"</text>" in record:
            inside = False
        for number, (pattern, replacement) in enumerate(MARKUP):
            record = pattern.sub(replacement, record, count=FIRST_ONLY if number == 0 else 0)
        yield letters(b" " + record + b" ")[:-1]


def records(dump: bytes) -> Iterator[bytes]:
    """Cut a dump after every ">"."""
    begin = 0
    while begin < len(dump):
        end = dump.find(b">", begin) + 1 or len(dump)
        yield dump[begin:end]
        begin = end


def prose(text: str) -> str:
    """Clean ordinary text like text8."""
    return letters(text.encode()).decode().strip()


PAGE = re.compile(rb"<text [^>]*>(.*?)</text>", re.S)

# Replacements that leave running text, in this order.
WIKI = [
    (re.compile(r"<!--.*?-->", re.S), ""),
    (re.compile(r"<[a-z][^<>]*/>", re.I), ""),  # first, because they look like opening tags
    (re.compile(r"<(ref|math|pre|nowiki|gallery|timeline)\b[^>]*>.*?</\1>", re.S | re.I), ""),
    (re.compile(r"</?[a-z][^<>]*>", re.I), ""),
    (re.compile(r"\{\|.*?\n\|\}", re.S), ""),  # tables
    (re.compile(r"\[\[(?:image|file|category|[a-z-]{2,12}):[^\[\]]*\]\]", re.I), ""),
    (re.compile(r"\[\[(?:[^|\[\]]*\|)?([^|\[\]]*)\]\]"), r"\1"),  # links, captions kept
    (re.compile(r"\[(?:https?|ftp)://[^\s\]]*\s*([^\]]*)\]"), r"\1"),
    (re.compile(r"'{2,}"), ""),
]
INNERMOST = re.compile(r"\{\{[^{}]*\}\}")
PARAGRAPH = re.compile(r"^[\w\"'(].{40,}[.!?\"')]$")
"""A line of prose: it begins and ends like a sentence and is longer than a caption."""


def pages(dump: bytes) -> Iterator[str]:
    """Yield the source of every article without templates; redirects are skipped."""
    for match in PAGE.finditer(dump):
        text = html.unescape(html.unescape(match[1].decode("utf-8", errors="ignore")))
        if text[:9].lower() == "#redirect":
            continue
        found = 1
        while found:
            text, found = INNERMOST.subn("", text)
        yield text


def articles(dump: bytes) -> Iterator[bytes]:
    """Yield the running text of every article, one paragraph per line; empty ones are skipped.

    Headings, lists, tables, templates and references are dropped; case, punctuation and other
    scripts are kept.
    """
    for text in pages(dump):
        for pattern, replacement in WIKI:
            text = pattern.sub(replacement, text)
        lines = (" ".join(line.split()) for line in text.split("\n"))
        kept = [line for line in lines if PARAGRAPH.match(line)]
        if kept:
            yield "\n".join(kept).encode()
