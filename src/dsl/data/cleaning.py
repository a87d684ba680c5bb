"""Text out of Wikipedia markup: by the published text8 rules, or as prose with its case."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

DIGITS = (b"zero", b"one", b"two", b"three", b"four", b"five", b"six", b"seven", b"eight", b"nine")

# What is removed or replaced inside a page, in this order.
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
FIRST_ONLY = 1  # of the dump's own tags, one a record
NOT_LETTERS = re.compile(rb"[^a-z]+")


def letters(text: bytes) -> bytes:
    """Spell digits, lower the case, and let everything that is no letter be one space."""
    lowered = text.lower()  # of bytes, so of A to Z alone
    for digit, word in enumerate(DIGITS):
        lowered = lowered.replace(b"%d" % digit, b" " + word + b" ")
    return NOT_LETTERS.sub(b" ", lowered)


def wikipedia(dump: bytes) -> Iterator[bytes]:
    """Clean a Wikipedia dump: pages' text only, redirects and markup removed.

    The rules are applied to records that end in ">", not to lines; so templates and tables may
    span lines, and what the dump itself tags is cut off at the end of each record.
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
    """Clean ordinary text by the same last step."""
    return letters(text.encode()).decode().strip()


PAGE = re.compile(rb"<text [^>]*>(.*?)</text>", re.S)

# What is removed or replaced to leave running text, in this order.
WIKI = [
    (re.compile(r"<!--.*?-->", re.S), ""),
    (re.compile(r"<[a-z][^<>]*/>", re.I), ""),  # before what could take one for an opening tag
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
"""A line of prose: it begins like a sentence, ends like one and is no mere caption."""


def pages(dump: bytes) -> Iterator[str]:
    """Return the source of every article that is no redirect, its templates removed."""
    for match in PAGE.finditer(dump):
        text = html.unescape(html.unescape(match[1].decode("utf-8", errors="ignore")))
        if text[:9].lower() == "#redirect":
            continue
        found = 1
        while found:
            text, found = INNERMOST.subn("", text)
        yield text


def articles(dump: bytes) -> Iterator[bytes]:
    """Return the running text of every article, a paragraph a line; articles without are left out.

    Headings, lists, tables, templates and references are dropped; case, punctuation and letters of
    other scripts are kept.
    """
    for text in pages(dump):
        for pattern, replacement in WIKI:
            text = pattern.sub(replacement, text)
        lines = (" ".join(line.split()) for line in text.split("\n"))
        kept = [line for line in lines if PARAGRAPH.match(line)]
        if kept:
            yield "\n".join(kept).encode()
