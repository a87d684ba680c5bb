"""hOCR, the HTML output of text recognisers.

Tesseract writes it. `-c hocr_char_boxes=1` adds the confidence of each character (`x_conf`);
otherwise all characters of a word have the word's confidence (`x_wconf`).
`-c lstm_choice_mode=2` adds the alternatives of each character. The time steps that mode 1 adds are
ignored.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import unescape

from dsl.apps.correct.formats import Format, Transcript, percent, place
from dsl.apps.correct.reading import Alternatives, Reading
from dsl.apps.correct.trust import CHARACTERS, WORDS

XML_NAME = r"[A-Za-z][^\s/>\"'<]*+"
TAG = re.compile(rf"<(/?)({XML_NAME})((?:[^>\"'<]|\"[^\"]*+\"|'[^']*+')*+)>")
ATTRIBUTE = re.compile(r"([^\s=/\"'<>]++)(\s*+=\s*+(?:\"([^\"]*+)\"|'([^']*+)'|([^\s\"'<>]++)))?+")
"""A name, with its value if there is one; so every character is read once."""
REFERENCE = re.compile(r"&(?:#[0-9]{1,9}|#[xX][0-9a-fA-F]{1,8}|[A-Za-z][A-Za-z0-9]{0,40});")
TEXT = re.compile(r"[^<&]++|[<&]")
OPENS = re.compile(r"</?[A-Za-z]")
CLOSED = {
    "<!--": re.compile("-->"),
    "<![CDATA[": re.compile(r"\]\]>"),
    "<!": re.compile(">"),
    "<?": re.compile(">"),
}
"""Openings of markup without text, and its ends; the longest opening first."""
RAW = re.compile(r"</(script|style)\s*+>", re.IGNORECASE)
ENTITY = re.compile(r"<!ENTITY\b", re.IGNORECASE)
UNKNOWN = "\ufffd"
"""Stands for a reference that is not one character."""


@dataclass(frozen=True, slots=True)
class Token:
    """A tag, a character reference, or text."""

    begin: int
    end: int
    text: str = ""
    """The text; empty for a tag."""
    tag: str = ""
    """The name of the element in lower case; empty for text."""
    closes: bool = False
    is_empty: bool = False
    """Whether the tag is an empty element, such as `<br/>`."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    is_reference: bool = False


def tokens(source: str) -> Iterator[Token]:
    """Yield the tokens of a file in one pass.

    Raises:
        ValueError: If the file declares entities, or a tag or comment does not end.
    """
    if declared := ENTITY.search(source):
        where = place(source, declared.start())
        raise ValueError(f"{where}: the file declares entities, which are not supported")
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
    """Return the token at a place; None for comments, declarations and instructions."""
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
    return {
        name.lower(): unescape(one or two or bare) for name, value, one, two, bare in found if value
    }


def _end(source: str, match: re.Match[str] | None, begin: int) -> int:
    if match is None:
        raise ValueError(
            f"{place(source, begin)}: expected the end of {source[begin : begin + 12]!r}"
        )
    return match.end()


COEFFICIENT = 0.05
"""Tesseract's default lstm_rating_coefficient over 100."""


def alternatives(read: str, confidence: float | None, choices: Alternatives) -> Alternatives:
    """Convert scores to probabilities.

    A score s is not a probability but max(0, 1 − 0.05 r), where r is a negative log-probability up
    to a constant. If the character that was read has score s₀ and confidence c, another one gets
    c exp((s − s₀) / 0.05): the ratios are right, the sum may exceed 1. The caller drops choices
    with score 0.
    """
    if confidence is None:
        return ()
    scores = dict(choices)
    own = scores.pop(read, max(scores.values(), default=0.0))
    return tuple(
        (text, min(1.0, confidence * math.exp((score - own) / COEFFICIENT)))
        for text, score in scores.items()
    )


def shared(characters: int, choices: Sequence[tuple[int, Alternatives]]) -> dict[int, Alternatives]:
    """Assign choices to the characters of a word.

    Args:
        characters: Number of characters of the word.
        choices: Each with the number of characters before it. Choices follow their character, or
            all of them follow the word.
    """
    if len(choices) == characters and all(before == characters for before, _ in choices):
        return dict(enumerate(scores for _, scores in choices))
    return {before - 1: scores for before, scores in choices if before}


PARAGRAPHS = frozenset({"ocr_page", "ocr_carea", "ocr_par"})
LINES = frozenset({"ocr_line", "ocrx_line", "ocr_header", "ocr_textfloat", "ocr_caption"})
VOID = frozenset({"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "wbr"})
"""Elements without a closing tag."""
DEEPEST = 200
"""Maximum nesting; real pages have a dozen levels."""
TESSERACT = re.compile(r"""name=["']ocr-system["']\s+content=["']tesseract""", re.IGNORECASE)
SPACE = " \t\n\r\f"
PIECE = re.compile(f"[{SPACE}]+|[^{SPACE}]")


@dataclass(frozen=True)
class Element:
    """An open element."""

    tag: str
    role: str = ""
    """The role of its text: word, character, choices, choice, aside (ignored), or none."""
    confidence: float | None = None
    begins: bool = False
    """Whether the role is its own, not its parent's."""


@dataclass
class Word:
    """An open word."""

    begin: int
    characters: list[tuple[str, int, int, float | None]] = field(default_factory=list)
    choices: list[tuple[int, list[tuple[str, float]]]] = field(default_factory=list)
    """Each with the number of characters before it."""


@dataclass
class Page:
    """The state of the parser."""

    source: str
    open: list[Element] = field(default_factory=lambda: [Element("")])
    word: Word | None = None
    between: str = ""
    """The separator before the next word."""
    blank: tuple[int, int] | None = None
    """White space that belongs to the word if a character follows."""
    inked: bool = False
    """Whether a character followed the last tag."""
    choice: str = ""
    roles: set[str] = field(default_factory=set)
    """All classes so far."""
    by_character: bool = False
    """Whether characters have their own confidences."""

    def __post_init__(self) -> None:
        self.found = Transcript(self.source, "hocr")

    def take(self, token: Token) -> None:
        """Process a token."""
        if not token.tag:
            self._text(token)
            return
        self.blank, self.inked = None, False
        if token.closes:
            self._close(token.tag)
        else:
            element = self._open(token)
            self.open.append(element)
            if token.is_empty or token.tag in VOID:
                self._close(token.tag)
            elif len(self.open) > DEEPEST:
                raise ValueError(f"{place(self.source, token.begin)}: nested too deeply")

    def reading(self) -> Reading:
        """Return the reading at the end of the file."""
        if self.word is not None:
            raise ValueError(f"{place(self.source, self.word.begin)}: this word does not end")
        if not self.roles & {"ocr_page", "ocrx_word"}:
            raise ValueError("expected hOCR, with elements of class ocr_page and ocrx_word")
        if self.roles & LINES and "ocrx_word" not in self.roles:
            raise ValueError("expected elements of class ocrx_word, got lines without words")
        if TESSERACT.search(self.source):
            self.found.scale = CHARACTERS if self.by_character else WORDS
        return self.found.reading()

    def _open(self, token: Token) -> Element:
        """Return the element of an opening tag."""
        classes = set(token.attributes.get("class", "").split())
        self.roles |= classes
        if classes & PARAGRAPHS:
            self.between = "\n\n"
        elif classes & LINES:
            self.between = self.between if self.between == "\n\n" else "\n"
        inside = self.open[-1]
        if "ocrx_word" in classes:
            if self.word is not None:
                raise ValueError(f"{place(self.source, token.begin)}: a word within a word")
            self.word = Word(token.begin)
            return Element(token.tag, "word", self._said(token, "x_wconf"), begins=True)
        if self.word is None or inside.role == "aside":
            return Element(token.tag, inside.role)
        if "ocr_symbol" in classes:
            return Element(token.tag, "aside")
        if "ocrx_cinfo" in classes:
            return self._character(token, inside)
        return Element(token.tag, inside.role, inside.confidence)

    def _character(self, token: Token, inside: Element) -> Element:
        """Return a character or a choice, which have the same class in Tesseract."""
        assert self.word is not None
        name = token.attributes.get("id", "")
        if name.startswith("lstm_choices"):
            self.word.choices.append((len(self.word.characters), []))
            return Element(token.tag, "choices")
        if name.startswith("choice"):
            self.choice = ""
            return Element(token.tag, "choice", self._said(token, "x_confs"), begins=True)
        if name.startswith("timestep"):
            return Element(token.tag, "aside")
        own = self._said(token, "x_conf")
        self.by_character |= own is not None
        return Element(token.tag, "character", inside.confidence if own is None else own)

    def _close(self, tag: str) -> None:
        """Close an element and all elements in it; ignore a tag that was never opened."""
        depth = max((i for i, each in enumerate(self.open) if i and each.tag == tag), default=0)
        for element in reversed(self.open[depth:] if depth else []):
            if element.begins and element.role == "word":
                self._finish()
            elif element.begins:
                self._choose(element)
            self.open.pop()

    def _choose(self, element: Element) -> None:
        """Add a finished choice, if it is one character with a score."""
        if self.word and self.word.choices and len(self.choice) == 1 and element.confidence:
            self.word.choices[-1][1].append((self.choice, element.confidence))

    def _finish(self) -> None:
        """Add a finished word."""
        word, self.word = self.word, None
        assert word is not None
        if not word.characters:
            return
        self.found.separate(self.between)
        self.between = " "
        choices = shared(len(word.characters), word.choices)
        for i, (text, begin, end, confidence) in enumerate(word.characters):
            others: Alternatives = alternatives(text, confidence, choices.get(i, ()))
            self.found.add(text, begin, end, confidence, others)

    def _text(self, token: Token) -> None:
        """Add text of a word, a character or a choice; white space around it is ignored."""
        element = self.open[-1]
        if element.role == "choice":
            self.choice = (self.choice + token.text[:2])[:2]  # two characters are already too many
        if self.word is None or element.role not in ("word", "character"):
            return
        for begin, end, text in _pieces(token):
            if text in SPACE and not token.is_reference:
                self.blank = (begin, end) if self.inked else None
                continue
            if self.blank is not None:
                self.word.characters.append((" ", *self.blank, element.confidence))
            self.word.characters.append((text, begin, end, element.confidence))
            self.blank, self.inked = None, True

    def _said(self, token: Token, name: str) -> float | None:
        """Return the confidence in the title of an element."""
        title = token.attributes.get("title", "")
        match = re.search(rf"(?:^|;)\s*{name}\s+([^;]*)", title)
        if match is None:
            return None
        try:
            return percent(match[1].strip(), name)
        except ValueError as error:
            raise ValueError(f"{place(self.source, token.begin)}: {error}") from error


def _pieces(token: Token) -> Iterator[tuple[int, int, str]]:
    """Yield begin, end and text of characters; a run of white space is one space."""
    if token.is_reference:
        yield token.begin, token.end, token.text
        return
    for piece in PIECE.finditer(token.text):
        text = " " if piece[0][0] in SPACE else piece[0]
        yield token.begin + piece.start(), token.begin + piece.end(), text


NAME = "hocr"
SUFFIXES = frozenset({".hocr", ".html", ".htm", ".xhtml"})
SIGN = re.compile(r"\bocr_page\b|\bocrx_word\b")
BREAKS = str.maketrans({space: f"&#{ord(space)};" for space in SPACE})


def read(source: str) -> Reading:
    """Read the words of one or several pages."""
    page = Page(source)
    for token in tokens(source):
        page.take(token)
    return page.reading()


def escape(text: str) -> str:
    """Escape text for HTML; white space becomes character references."""
    return html.escape(text).translate(BREAKS)


def recognise(source: str, suffix: str) -> bool:
    """Whether the content is markup with classes of hOCR, or the suffix is its own."""
    if suffix in SUFFIXES:
        return True
    return source.lstrip("\ufeff" + SPACE).startswith("<") and SIGN.search(source) is not None


FORMAT = Format(NAME, "a page of Tesseract's hOCR", read, escape, recognise, 40)
