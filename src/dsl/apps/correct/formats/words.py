"""Lists of words or characters in JSON, with confidences, as speech recognisers write them.

    {"words": [{"text": "hello", "confidence": 0.93,
                "alternatives": [{"text": "hallo", "confidence": 0.05}]},
               {"characters": [{"text": "y", "confidence": 0.6,
                                "alternatives": [{"text": "v", "confidence": 0.3}]},
                               {"text": ""}, {"text": "u"}]}]}

Every character of a word has the confidence of the word. An alternative word of the same length
gives alternatives for the characters that differ; other lengths are ignored. A character with empty
text is a gap. `{"characters": [...]}` alone is a text without words.

The output of Whisper and related recognisers is read, too. Words are found in `segments`, `result`,
`transcription` and `tokens`; the text of a word is `text`, `word` or `w`, its confidence
`confidence`, `probability`, `conf`, `score` or `p`. Everything else is ignored. Words are separated
by spaces, unless at least half of them contain their own, or they are tokens (pieces of words). The
text of an object with characters or words is not read, and not corrected.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any

from dsl._util.validate import probability
from dsl.apps.correct.formats import Format, Transcript, place, shown
from dsl.apps.correct.formats.plain import MARK
from dsl.apps.correct.reading import Alternatives, Reading

SPACE = re.compile(r"[ \t\n\r]*")
UNIT = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|.", re.DOTALL
)
"""One character of a string in JSON, perhaps escaped."""


@dataclass(frozen=True, slots=True)
class Spelled:
    """A string with its position in the file."""

    text: str
    begin: int
    """After the opening quotation mark."""
    end: int
    """Before the closing one."""

    def characters(self, source: str) -> Iterator[tuple[int, int, str]]:
        """Yield begin, end and text of each character."""
        if self.end - self.begin == len(self.text):
            for at, character in enumerate(self.text, self.begin):
                yield at, at + 1, character
            return
        units = UNIT.finditer(source, self.begin, self.end)
        for unit, character in zip(units, self.text, strict=True):
            yield unit.start(), unit.end(), character


class _Decoder(json.JSONDecoder):
    """A decoder that keeps the positions of strings, except keys."""

    def __init__(self) -> None:
        super().__init__(parse_constant=_refuse)
        self.parse_string = _spelled
        self.scan_once = py_make_scanner(self)  # the C scanner cannot return other strings


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
        raise ValueError(f"not JSON: extra text at {place(source, rest.end())}")
    return found


def _spelled(source: str, begin: int, strict: bool) -> tuple[Spelled, int]:
    text, end = scanstring(source, begin, strict)
    if end - 1 - begin > len(text) and any("\ud800" <= c <= "\udfff" for c in text):
        raise ValueError(f"unpaired surrogate in the string at {place(source, begin)}")
    return Spelled(text, begin, end - 1), end


def _refuse(name: str) -> float:
    raise ValueError(f"expected a JSON number, got {name}")


NAME = "words"
SUFFIXES = frozenset({".json"})
LISTS = ("words", "tokens", "segments", "result", "transcription")
TEXTS = ("text", "word", "w")
CONFIDENCES = ("confidence", "probability", "conf", "score", "p")
MARKER = re.compile(r"\[_\w+\]")
"""A special token of whisper.cpp, such as [_BEG_]."""
SIGN = re.compile(r'\ufeff?\s*+(?:\{\s*+"\w*+"\s*+:|\[\s*+\{\s*+")')
Word = Mapping[str, Any]


def read(source: str) -> Reading:
    """Read a list of words or characters."""
    found = Transcript(source, NAME)
    words = list(_words(parse(source)))
    spaced = 2 * sum(_spaced(word) for word, _ in words) >= len(words)
    for word, is_piece in words:
        if not (spaced or is_piece):
            found.separate(" ")
        _add(found, word)
    return found.reading()


def escape(text: str) -> str:
    """Escape text for a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def recognise(source: str, suffix: str) -> bool:
    """Whether the content begins like JSON with objects, or the suffix is .json."""
    return suffix in SUFFIXES or SIGN.match(source) is not None


def _words(node: Any, *, pieces: bool = False) -> Iterator[tuple[Word, bool]]:
    """Yield the words, and whether they are pieces of words."""
    if isinstance(node, list):
        for each in node:
            yield from _words(each, pieces=pieces)
        return
    if not isinstance(node, dict):
        raise ValueError(f"expected objects with a text, got {_named(node)}")
    inner = next((name for name in LISTS if _holds_objects(node.get(name))), None)
    if "characters" in node:
        if node["characters"] != []:
            yield node, pieces
    elif inner is not None:
        yield from _words(node[inner], pieces=inner == "tokens")
    elif text := _text(node):
        if text.text and not MARKER.fullmatch(text.text):
            yield node, pieces
    elif not any(isinstance(node.get(name), list) for name in LISTS):
        keys = ", ".join(map(shown, list(node)[:5])) or "no keys"
        raise ValueError(f"expected an object with words, characters or a text, got {keys}")


def _holds_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and not isinstance(value[0], int | float)


def _add(found: Transcript, word: Word) -> None:
    """Add the characters of a word."""
    if "characters" in word:
        for each in _list(word["characters"], "characters"):
            _add_character(found, each)
        return
    text = _text(word)
    assert text is not None
    confidence = _confidence(word, text, found.source)
    others = _others(word, text.text, found.source)
    lead = len(text.text) - len(text.text.lstrip())  # leading spaces have no confidence
    for i, (begin, end, character) in enumerate(text.characters(found.source)):
        found.add(character, begin, end, None if i < lead else confidence, others.get(i, ()))


def _add_character(found: Transcript, each: Any) -> None:
    text = _text(each) if isinstance(each, dict) else None
    if text is None:
        raise ValueError(f"expected characters with a text, got {_named(each)}")
    if len(text.text) > 1:
        where = place(found.source, text.begin)
        raise ValueError(f"{where}: a character must have one character, got {shown(text.text)}")
    confidence = _confidence(each, text, found.source)
    others = _others(each, text.text, found.source, size=1)
    found.add(text.text, text.begin, text.end, confidence, others.get(0, ()))


def _others(word: Word, text: str, source: str, size: int | None = None) -> dict[int, Alternatives]:
    """Return the alternatives of each place, from words of the same length."""
    shares: dict[int, dict[str, float]] = {}
    for other in _list(word.get("alternatives"), "alternatives"):
        spelled = _text(other) if isinstance(other, dict) else None
        if spelled is None:
            raise ValueError(f"expected alternatives with a text, got {_named(other)}")
        share = _confidence(other, spelled, source)
        if share is None or len(spelled.text) != (len(text) if size is None else size):
            continue
        for i, character in enumerate(spelled.text):
            if character != text[i : i + 1]:
                of = shares.setdefault(i, {})
                of[character] = min(1.0, of.get(character, 0.0) + share)
    return {i: tuple(of.items()) for i, of in shares.items()}


def _text(node: Word) -> Spelled | None:
    return next((node[name] for name in TEXTS if isinstance(node.get(name), Spelled)), None)


def _confidence(node: Word, text: Spelled, source: str) -> float | None:
    name = next((name for name in CONFIDENCES if node.get(name) is not None), None)
    if name is None:
        return None
    given = node[name].text if isinstance(node[name], Spelled) else node[name]
    try:
        return probability(f"{name} of {shown(text.text)}", given)
    except ValueError as error:
        raise ValueError(f"{place(source, text.begin)}: {error}") from error


def _list(value: Any, name: str) -> Iterable[Any]:
    if value is not None and not isinstance(value, list):
        raise ValueError(f"{name} must be a list, got {_named(value)}")
    return value or ()


def _spaced(word: Word) -> bool:
    """Whether the text of a word contains the space before or after it."""
    text = _text(word)
    return text is not None and "characters" not in word and text.text != text.text.strip()


def _named(value: Any) -> str:
    """Name a value for a message."""
    kinds = {dict: "an object without", list: "a list", Spelled: "a string", type(None): "null"}
    return kinds.get(type(value), shown(str(value)))


FORMAT = Format(NAME, "words or characters in JSON", read, escape, recognise, 20)
