"""The published text8 rules: Wikipedia markup becomes lower-case words and single spaces."""

from __future__ import annotations

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
