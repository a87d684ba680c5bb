r"""Text with confidences in braces.

    The {modem|0.4} c{o|0.9|a:0.06|e:0.02}rn was b{}ught at 12 \{pence\}.

`{word|0.62}` is read with that confidence in each of its characters, `{o|0.9|a:0.06}` names other
characters that one might be, and `{}` or `{?}` is a gap, a character that could not be made out. A
backslash makes an ordinary character of `{`, `}`, `|` and itself. What stands outside of braces is
text of which nobody says how surely it was read.
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
"""A pair of braces: a text, and what is said of it."""
ALTERNATIVE = re.compile(r"(\\[{}|\\]|[^{}|\\]):([^|]*)", re.DOTALL)
ORDINARY = re.compile(r"\\[{}|\\]|[^{}\\]+")
"""What stands outside of braces; a bar is an ordinary character there."""
SIGN = re.compile(r"\{[^{}|\n]{1,80}\|[01]?\.?[0-9]{1,20}[|}]")
"""What hardly any other text has."""
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
    """Write text so that its braces, bars and backslashes are ordinary characters."""
    return SPECIAL.sub(r"\\\1", text)


def recognise(source: str, suffix: str) -> bool:
    """Whether braces of this format stand in a file, or its name says so."""
    return suffix in SUFFIXES or SIGN.search(source) is not None


def _units(source: str, begin: int, end: int) -> Iterator[tuple[int, int, str]]:
    """Take a text apart into characters; one after a backslash spans both."""
    while begin < end:
        size = 2 if source[begin] == "\\" else 1
        yield begin, begin + size, source[begin + size - 1]
        begin += size


def _group(found: Transcript, match: re.Match[str]) -> None:
    """Note what stands in a pair of braces."""
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
    """Read how sure a text is, and what else it might be."""
    if not said:
        hint = " (a gap is {}, three are {}{}{})" if text.startswith("?") else ""
        raise ValueError(f"expected {{text|confidence}}, got {shown(f'{{{text}}}')}{hint}")
    first, *others = _fields(said[1:])
    alternatives = [_alternative(each) for each in others]
    if alternatives and len(text.removeprefix("\\")) > 1:
        raise ValueError(f"others are named for one character, got them for {shown(text)}")
    return _number(f"the confidence of {shown(text)}", first), alternatives


def _fields(said: str) -> list[str]:
    """Part what is said at its bars; one after a backslash is none."""
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
    """Say why something can be neither text nor braces."""
    if source[at] == "\\":
        return r"a backslash stands before {, }, | or another one (write \\ for a backslash)"
    if source[at] == "}":
        return r"nothing opens this } (write \} for an ordinary one)"
    return r"expected {text|confidence} or {}, got a { that opens neither (write \{ for a brace)"


FORMAT = Format(NAME, "text with {word|0.6}", read, escape, recognise, 10)
