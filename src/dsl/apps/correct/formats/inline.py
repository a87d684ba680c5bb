r"""Text with confidences in braces.

    The {modem|0.4} c{o|0.9|a:0.06|e:0.02}rn was b{}ught at 12 \{pence\}.

`{word|0.62}` gives each character of the word this confidence, `{o|0.9|a:0.06}` lists alternatives
of one character, and `{}` or `{?}` is a gap, an unreadable character. A backslash escapes `{`, `}`,
`|` and itself. Text outside braces has no confidence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dsl._util.validate import probability
from dsl.apps.correct.formats import Format, Transcript, place, shown
from dsl.apps.correct.formats.plain import MARK
from dsl.apps.correct.reading import Reading

NAME = "inline"
SUFFIXES = frozenset({".inline"})
GROUP = re.compile(r"\{((?:\\[{}|\\]|[^{}|\\])*+)((?:\|(?:\\[{}|\\]|[^{}\\])*+)?)\}")
"""A pair of braces: a text, and its confidences."""
ALTERNATIVE = re.compile(r"(\\[{}|\\]|[^{}|\\]):([^|]*)", re.DOTALL)
ORDINARY = re.compile(r"\\[{}|\\]|[^{}\\]+")
"""Text outside braces; a bar is an ordinary character there."""
SIGN = re.compile(r"\{[^{}|\n]{1,80}\|[01]?\.?[0-9]{1,20}[|}]")
"""Rare in any other text, so it identifies the format."""
SPECIAL = re.compile(r"([{}|\\])")


def read(source: str) -> Reading:
    """Read text with confidences in braces."""
    found = Transcript(source, NAME)
    at = len(MARK) if source.startswith(MARK) else 0
    while at < len(source):
        if match := ORDINARY.match(source, at):
            for begin, end, text in _units(source, at, match.end()):
                found.add(text, begin, end)
        elif match := GROUP.match(source, at):
            _group(found, match)
        else:
            raise ValueError(f"{place(source, at)}: {_fault(source, at)}")
        at = match.end()
    return found.reading()


def escape(text: str) -> str:
    """Escape braces, bars and backslashes."""
    return SPECIAL.sub(r"\\\1", text)


def recognise(source: str, suffix: str) -> bool:
    """Whether the content has braces of this format, or the suffix is its own."""
    return suffix in SUFFIXES or SIGN.search(source) is not None


def _units(source: str, begin: int, end: int) -> Iterator[tuple[int, int, str]]:
    """Yield begin, end and character; an escaped one includes its backslash."""
    while begin < end:
        size = 2 if source[begin] == "\\" else 1
        yield begin, begin + size, source[begin + size - 1]
        begin += size


def _group(found: Transcript, match: re.Match[str]) -> None:
    """Add the characters of a pair of braces."""
    text, said = match.groups()
    if not said and text in ("", "?"):
        found.add("", match.start(), match.end())
        return
    try:
        confidence, alternatives = _said(text, said)
    except ValueError as error:
        raise ValueError(f"{place(found.source, match.start())}: {error}") from error
    for begin, end, character in _units(found.source, *match.span(1)):
        found.add(character, begin, end, confidence, alternatives)


def _said(text: str, said: str) -> tuple[float, list[tuple[str, float]]]:
    """Read the confidence and the alternatives of a text."""
    if not said:
        hint = " (a gap is {}, three are {}{}{})" if text.startswith("?") else ""
        raise ValueError(f"expected {{text|confidence}}, got {shown(f'{{{text}}}')}{hint}")
    first, *others = _fields(said[1:])
    alternatives = [_alternative(each) for each in others]
    if alternatives and len(text.removeprefix("\\")) > 1:
        raise ValueError(f"alternatives must be of one character, got {shown(text)}")
    return _number(f"the confidence of {shown(text)}", first), alternatives


def _fields(said: str) -> list[str]:
    """Split at bars that are not escaped."""
    return re.findall(r"(?:^|\|)((?:\\.|[^|\\])*+)", said, re.DOTALL)


def _alternative(written: str) -> tuple[str, float]:
    match = ALTERNATIVE.fullmatch(written)
    if match is None:
        raise ValueError(f"expected character:confidence, got {shown(written)}")
    return match[1][-1], _number(f"the confidence of {shown(match[1][-1])}", match[2])


def _number(name: str, written: str) -> float:
    try:
        return probability(name, float(written))
    except ValueError as error:
        raise ValueError(f"{name} must lie in 0 … 1, got {shown(written)}") from error


def _fault(source: str, at: int) -> str:
    """Return the reason why a place is neither text nor braces."""
    if source[at] == "\\":
        return r"a backslash must be followed by {, }, | or \ (write \\ for a backslash)"
    if source[at] == "}":
        return r"this } has no opening brace (write \} for an ordinary one)"
    return r"expected {text|confidence} or {}, got an unclosed { (write \{ for a brace)"


FORMAT = Format(NAME, "text with {word|0.6}", read, escape, recognise, 10)
