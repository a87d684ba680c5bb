"""Renderings of a correction: JSON, lines for a terminal, a page."""

from __future__ import annotations

import io
import json
import math
from html import unescape
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from dsl.apps.correct import render
from dsl.apps.correct.formats import inline, plain
from dsl.apps.correct.formats.hocr import tokens
from dsl.apps.correct.reading import Correction, Edit
from dsl.apps.correct.render import pieces

SOURCE = "It is\nthe modem c{o|0.4}rn bougbt{}\n"
READING = inline.read(SOURCE)
EDITS = (
    Edit(14, 1, "m", "rn", 0.93, (("m", 0.06),), ((0, 0.06), (1, 0.94))),
    Edit(17, 1, "o", "a", 0.41, (("o", 0.55), ("", 0.02)), decided=False),
    Edit(25, 1, "b", "h", 1.0),
    Edit(27, 1, "", ".", 0.8),
)
DOUBT = [math.nan] * 10 + [0.04, 0.24, 0.26, 0.3, 0.94, 0.9, 0.0, 0.6] + [math.nan] * 11
CORRECTION = Correction(READING, EDITS, DOUBT, "english-tiny")


class TestJson:
    def test_everything_is_said(self) -> None:
        found = json.loads(render.as_json(CORRECTION))
        assert found == render.record(CORRECTION)
        assert found["model"] == "english-tiny"
        assert found["text"] == CORRECTION.text == "It is\nthe modern corn bought.\n"
        assert (found["characters"], found["doubtful"]) == (29, 3)
        assert list(found) == ["model", "text", "characters", "doubtful", "edits"]
        assert found["edits"][0] == {
            "begin": 14, "end": 15, "line": 2, "column": 9, "old": "m", "new": "rn",
            "probability": 0.93, "alternatives": [{"text": "m", "probability": 0.06}],
            "lengths": [{"longer": 0, "probability": 0.06}, {"longer": 1, "probability": 0.94}],
            "decided": True,
        }  # fmt: skip
        assert [edit["decided"] for edit in found["edits"]] == [True, False, True, True]

    def test_places_are_those_of_the_file(self) -> None:
        for edit in render.record(CORRECTION)["edits"]:
            line = SOURCE.split("\n")[edit["line"] - 1]
            written = SOURCE[edit["begin"] : edit["end"]]
            assert line[edit["column"] - 1 :].startswith(written)
            assert written == (edit["old"] or "{}")


def shown(correction: Correction, *, colour: bool) -> str:
    out = io.StringIO()
    console = Console(
        file=out, width=200, force_terminal=colour, color_system="standard" if colour else None
    )
    console.print(render.as_diff(correction), end="")
    return out.getvalue()


class TestDiff:
    def test_lines_with_edits_and_what_they_are(self) -> None:
        assert shown(CORRECTION, colour=False) == (
            "line 2: the mode[-m-]{+rn+} c[?o|a?]rn boug[-b-]{+h+}t[-_-]{+.+}\n"
            "  2:9  m → rn  0.93; others: m 0.06\n"
            "  2:13  o → a?  0.41; others: o 0.55, nothing 0.02\n"
            "  2:26  b → h  1.00\n"
            "  2:28  _ → .  0.80\n"
        )

    def test_colours_come_on_top(self) -> None:
        coloured = shown(CORRECTION, colour=True)
        assert "\x1b[" in coloured and "{+rn+}" in coloured

    def test_nothing_to_say(self) -> None:
        assert render.as_diff(Correction(READING, (), DOUBT, "m")).plain == ""

    def test_only_what_is_near_is_shown(self) -> None:
        text = "a" * 1000
        edits = [
            Edit(100, 1, "a", "b", 1.0),
            Edit(150, 0, "", "c", 1.0),
            Edit(900, 2, "aa", "", 1.0),
        ]
        lines = render.as_diff(Correction(plain.read(text), edits, [0.0] * 1000, "m")).plain
        first, *_, last, _ = lines.splitlines()
        assert first == f"line 1: {'a' * 40}[-a-]{{+b+}}{'a' * 49}{{+c+}}{'a' * 40}"
        assert last == f"line 1: {'a' * 40}[-aa-]{'a' * 40}"

    def test_a_file_cannot_speak_to_the_terminal(self) -> None:
        reading = plain.read("a\x1b[31mb\tc\x07")
        edits = (Edit(0, 1, "a", "\x1b]0;x\x07\n ", 1.0, (("\x1b", 0.1),)),)
        lines = render.as_diff(Correction(reading, edits, [0.0] * len(reading.symbols), "m")).plain
        assert "\x1b" not in lines and "\x07" not in lines and "↵␣" in lines


class Elements(HTMLParser):
    """Every element that is opened is closed, and what they say."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: set[str | None] = set()
        self.targets: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "link"):
            self.open.append(tag)
        assert not {"src", "onclick"} & {name for name, _ in attrs}
        self.ids.add(dict(attrs).get("id"))
        self.targets += [str(value) for name, value in attrs if name == "href"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data)


class TestHtml:
    PAGE = render.as_html(CORRECTION, "page <1>")

    def test_edits_are_struck_put_in_and_marked(self) -> None:
        assert (
            '<a href="#e1" title="m → rn: 0.93; others: m 0.06"><del>m</del><ins>rn</ins></a>'
            in (self.PAGE)
        )
        assert '(undecided): 0.41; others: o 0.55, nothing 0.02"><mark>o</mark></a>' in self.PAGE
        assert "<del>_</del><ins>.</ins>" in self.PAGE
        assert (
            "3 changes, 1 left undecided, in 29 characters; by the model english-tiny." in self.PAGE
        )

    def test_doubtful_letters_are_shaded_together(self) -> None:
        assert '<span class="d3" title=' in self.PAGE
        assert ">od</span>" not in self.PAGE and ">de</span>" in self.PAGE

    def test_a_page_stands_alone(self) -> None:
        found = Elements(self.PAGE)
        assert {target.removeprefix("#") for target in found.targets} <= {*found.ids, "data:,"}
        assert "http" not in self.PAGE and "@import" not in self.PAGE
        assert "prefers-color-scheme: dark" in self.PAGE and "viewport" in self.PAGE
        assert found.texts["title"] == ["page <1>"]

    def test_without_edits_there_is_no_table(self) -> None:
        assert "<table>" not in render.as_html(Correction(READING, (), DOUBT, "m"))


@st.composite
def corrections(draw: st.DrawFn) -> Correction:
    """Make a correction of any text, with any edits."""
    text = draw(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("<&\n {}"),
                        max_size=30))  # fmt: skip
    reading = plain.read(text.lstrip("\ufeff"))
    count, edits, place = len(reading.symbols), [], 0
    while place < count and draw(st.booleans()):
        place += draw(st.integers(0, count - place))
        size = draw(st.integers(0, min(3, count - place)))
        new = draw(st.sampled_from(["", "x", "<b>", "rn", "\n", "&amp;", '"']))
        old = "".join(symbol.text for symbol in reading.symbols[place : place + size])
        edits.append(Edit(place, size, old, new, 0.5, (("<", 0.2),), (), draw(st.booleans())))
        place += size + 1
    doubt = draw(st.lists(st.floats(0, 1) | st.just(math.nan), min_size=count, max_size=count))
    return Correction(reading, edits, doubt, "<m>")


@given(correction=corrections())
@settings(max_examples=50, deadline=None, derandomize=True, database=None)
def test_anything_can_be_rendered(correction: Correction) -> None:
    assert json.loads(render.as_json(correction))["text"] == correction.text
    lines = render.as_diff(correction).plain
    assert lines.count(" → ") >= len(correction.edits)
    page = render.as_html(correction)
    Elements(page)
    inside = page[page.index('<div class="text box">') : page.index("</div>")]
    stayed = "".join(token.text for token in tokens(inside))
    assert len(unescape(stayed)) >= len(correction.reading.symbols) - sum(
        edit.size for edit in correction.edits
    )


@given(correction=corrections())
@settings(max_examples=40, deadline=None, derandomize=True, database=None)
def test_pieces_are_the_whole_text_once(correction: Correction) -> None:
    places: list[int] = []
    for piece in pieces(correction.edits, 0, len(correction.reading.symbols)):
        size = 0 if isinstance(piece, range) else piece.size
        places += piece if isinstance(piece, range) else range(piece.place, piece.place + size)
    assert places == list(range(len(correction.reading.symbols)))


@pytest.mark.parametrize("doubt, level", [(math.nan, 0), (0.0, 0), (0.04, 0), (0.06, 1), (1.0, 10)])
def test_shades(doubt: float, level: int) -> None:
    assert render._level(doubt) == level
