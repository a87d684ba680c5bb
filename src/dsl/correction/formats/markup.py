"""Markup as tokens that know where they stand: no tree is built and nothing is looked up elsewhere.

Entities that a file declares are refused, so that none can stand for a million others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import unescape

from dsl.correction.formats.places import place

NAME = r"[A-Za-z][^\s/>\"'<]*+"
TAG = re.compile(rf"<(/?)({NAME})((?:[^>\"'<]|\"[^\"]*+\"|'[^']*+')*+)>")
ATTRIBUTE = re.compile(r"([^\s=/\"'<>]++)\s*+=\s*+(?:\"([^\"]*+)\"|'([^']*+)'|([^\s\"'<>]++))")
REFERENCE = re.compile(r"&(?:#[0-9]{1,9}|#[xX][0-9a-fA-F]{1,8}|[A-Za-z][A-Za-z0-9]{0,40});")
TEXT = re.compile(r"[^<&]++|[<&]")
OPENS = re.compile(r"</?[A-Za-z]")
CLOSED = {
    "<!--": re.compile("-->"),
    "<![CDATA[": re.compile(r"\]\]>"),
    "<!": re.compile(">"),
    "<?": re.compile(">"),
}
"""What is no text, and what ends it; the longest comes first."""
RAW = re.compile(r"</(script|style)\s*+>", re.IGNORECASE)
ENTITY = re.compile(r"<!ENTITY\b", re.IGNORECASE)
UNKNOWN = "\ufffd"
"""What a reference stands for that is not one character."""


@dataclass(frozen=True, slots=True)
class Token:
    """A tag, a reference to a character, or a stretch of text."""

    begin: int
    end: int
    text: str = ""
    """What it says; empty for a tag."""
    tag: str = ""
    """The element's name in small letters; empty for text."""
    closes: bool = False
    is_empty: bool = False
    """Whether the tag closes what it opens, as `<br/>` does."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    is_reference: bool = False


def tokens(source: str) -> Iterator[Token]:
    """Take markup apart, from beginning to end in one pass.

    Raises:
        ValueError: for a file that declares entities, or a tag or comment that does not end.
    """
    if declared := ENTITY.search(source):
        where = place(source, declared.start())
        raise ValueError(f"{where}: the file declares entities, which are not read")
    at = 0
    while at < len(source):
        token = _token(source, at)
        if token is not None:
            yield token
            at = token.end
            if token.tag in ("script", "style") and not token.closes:
                at = _end(source, RAW.search(source, at), token.begin)
        else:
            opening = next(opening for opening in CLOSED if source.startswith(opening, at))
            at = _end(source, CLOSED[opening].search(source, at + len(opening)), at)


def _token(source: str, at: int) -> Token | None:
    """Read what stands at a place; None for comments, declarations and instructions."""
    if source[at] == "&" and (reference := REFERENCE.match(source, at)):
        text = unescape(reference[0])
        return Token(at, reference.end(), text if len(text) == 1 else UNKNOWN, is_reference=True)
    if source.startswith(("<!", "<?"), at):
        return None
    if OPENS.match(source, at):
        tag = TAG.match(source, at)
        end = _end(source, tag, at)
        assert tag is not None
        closes, name, rest = tag.groups()
        return Token(
            at, end, "", name.lower(), closes == "/", rest.endswith("/"), _attributes(rest)
        )
    stretch = TEXT.match(source, at)
    assert stretch is not None
    return Token(at, stretch.end(), stretch[0])


def _attributes(written: str) -> dict[str, str]:
    found = ATTRIBUTE.findall(written)
    return {name.lower(): unescape(one or two or bare) for name, one, two, bare in found}


def _end(source: str, match: re.Match[str] | None, begin: int) -> int:
    if match is None:
        raise ValueError(
            f"{place(source, begin)}: expected the end of {source[begin : begin + 12]!r}"
        )
    return match.end()
