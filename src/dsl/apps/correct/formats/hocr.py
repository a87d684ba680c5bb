"""hOCR, the page of a recogniser: words and lines in the markup of the web.

Tesseract writes it; `-c hocr_char_boxes=1` adds the confidence of each character (`x_conf`), else
the word's (`x_wconf`) is that of all its characters, and `-c lstm_choice_mode=2` adds what else a
character might be (`choices.py`). What mode 1 adds, every time step of the network, is passed over.
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


COEFFICIENT = 0.05
"""Tesseract's lstm_rating_coefficient over 100, unless it was told otherwise."""


def alternatives(read: str, confidence: float | None, choices: Alternatives) -> Alternatives:
    """Turn scores into probabilities.

    A score of 0 … 1 is no probability but 1 − 0.05 r, cut off at 0, where r is minus the logarithm
    of one up to a constant. What is scored s, where the character that was read is scored s₀ and
    has confidence c, gets c exp((s − s₀) / 0.05): the ratios are right, the sum may exceed 1.
    Choices that were cut off are left out before.
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
    """Say which choices are which character's.

    Args:
        characters: How many a word has.
        choices: Each with how many characters of the word stood before it. They follow their
            character, or all follow the word.
    """
    if len(choices) == characters and all(before == characters for before, _ in choices):
        return dict(enumerate(scores for _, scores in choices))
    return {before - 1: scores for before, scores in choices if before}


PARAGRAPHS = frozenset({"ocr_page", "ocr_carea", "ocr_par"})
LINES = frozenset({"ocr_line", "ocrx_line", "ocr_header", "ocr_textfloat", "ocr_caption"})
VOID = frozenset({"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "wbr"})
"""Elements that nothing closes."""
DEEPEST = 200
"""Elements within each other; real pages have a dozen."""
TESSERACT = re.compile(r"""name=["']ocr-system["']\s+content=["']tesseract""", re.IGNORECASE)
SPACE = " \t\n\r\f"
PIECE = re.compile(f"[{SPACE}]+|[^{SPACE}]")


@dataclass(frozen=True)
class Element:
    """An element that is open."""

    tag: str
    role: str = ""
    """What its text is: of a word, of a character, a choice, aside, or nothing."""
    confidence: float | None = None
    begins: bool = False
    """Whether the role is its own and not that of what it stands in."""


@dataclass
class Word:
    """A word that is being spelt."""

    begin: int
    characters: list[tuple[str, int, int, float | None]] = field(default_factory=list)
    choices: list[tuple[int, list[tuple[str, float]]]] = field(default_factory=list)
    """Each with how many characters stood before it."""


@dataclass
class Page:
    """What was read so far."""

    source: str
    open: list[Element] = field(default_factory=lambda: [Element("")])
    word: Word | None = None
    between: str = ""
    """What parts the next word from the last one."""
    blank: tuple[int, int] | None = None
    """White space that belongs to the word if a character follows it."""
    inked: bool = False
    """Whether there was a character since the last tag."""
    choice: str = ""
    roles: set[str] = field(default_factory=set)
    """Classes that occurred."""
    by_character: bool = False
    """Whether characters had confidences of their own."""

    def __post_init__(self) -> None:
        self.found = Transcript(self.source, "hocr")

    def take(self, token: Token) -> None:
        """Read on."""
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
        """Return what was read when the file is at its end."""
        if self.word is not None:
            raise ValueError(f"{place(self.source, self.word.begin)}: this word does not end")
        if not self.roles & {"ocr_page", "ocrx_word"}:
            raise ValueError("expected hOCR, with elements of class ocr_page and ocrx_word")
        if self.roles & LINES and "ocrx_word" not in self.roles:
            raise ValueError("expected words (elements of class ocrx_word), got lines without")
        if TESSERACT.search(self.source):
            self.found.scale = CHARACTERS if self.by_character else WORDS
        return self.found.reading()

    def _open(self, token: Token) -> Element:
        """Say what an element is, and prepare for what it holds."""
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
        """Tell characters from choices, which Tesseract gives the same class."""
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
        """Close an element and what was left open in it; one that was never opened is no matter."""
        depth = max((i for i, each in enumerate(self.open) if i and each.tag == tag), default=0)
        for element in reversed(self.open[depth:] if depth else []):
            if element.begins and element.role == "word":
                self._finish()
            elif element.begins:
                self._choose(element)
            self.open.pop()

    def _choose(self, element: Element) -> None:
        """Note a choice that ends, if it is one character with a score."""
        if self.word and self.word.choices and len(self.choice) == 1 and element.confidence:
            self.word.choices[-1][1].append((self.choice, element.confidence))

    def _finish(self) -> None:
        """Note the word that ends."""
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
        """Read text of a word, a character or a choice; white space around it is layout."""
        element = self.open[-1]
        if element.role == "choice":
            self.choice += token.text
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
        """Read a confidence that an element's title gives."""
        title = token.attributes.get("title", "")
        match = re.search(rf"(?:^|;)\s*{name}\s+([^;]*)", title)
        if match is None:
            return None
        try:
            return percent(match[1].strip(), name)
        except ValueError as error:
            raise ValueError(f"{place(self.source, token.begin)}: {error}") from error


def _pieces(token: Token) -> Iterator[tuple[int, int, str]]:
    """Take a token apart into characters and stretches of white space (which become one space)."""
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
    """Read the words of a page, or of several."""
    page = Page(source)
    for token in tokens(source):
        page.take(token)
    return page.reading()


def escape(text: str) -> str:
    """Write text as markup does; white space by number, because else it is layout."""
    return html.escape(text).translate(BREAKS)


def recognise(source: str, suffix: str) -> bool:
    """Whether a file is markup with the classes of hOCR, or is called so."""
    if suffix in SUFFIXES:
        return True
    return source.lstrip("\ufeff" + SPACE).startswith("<") and SIGN.search(source) is not None


FORMAT = Format(NAME, "a page of Tesseract's hOCR", read, escape, recognise, 40)
