from __future__ import annotations

import math
import re
from html import unescape
from xml.etree import ElementTree

import pytest

from dsl.apps.demo.page import COLOURS, DARK, DASHES, LIGHT, ON_DARK, lines, style
from dsl.apps.demo.svg import LETTER, cells, contrast, heatmap, ink, shade, ticks

WORDS = {"title": "a title", "description": "a description"}
AXES = {"x_name": "time", "y_name": "height"}


def test_shades_run_between_two_ends() -> None:
    assert len({shade(0.0), shade(0.5), shade(1.0)}) == 3
    assert shade(-3.0) == shade(0.0) and shade(7.0) == shade(1.0)


def test_contrast_has_its_known_ends_and_every_shade_can_be_written_on() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#808080", "#808080") == pytest.approx(1.0)
    assert all(contrast(ink(shade(i / 50)), shade(i / 50)) >= 4.5 for i in range(51))


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_all_text_is_readable_on_light_and_on_dark_pages(theme: dict[str, str]) -> None:
    pairs = [("ink", "page"), ("soft", "page"), ("wrong", "page"), ("ink", "gap")]
    for text, ground in [*pairs, ("ink", "mended")]:
        assert contrast(theme[text], theme[ground]) >= 4.5, (text, ground)
    curves = COLOURS if theme is LIGHT else ON_DARK
    assert all(contrast(colour, theme["page"]) >= 4.5 for colour in curves)
    assert all(f"--{name}: {colour};" in style() for name, colour in theme.items())


def test_neighbours_of_one_colour_are_one_rectangle() -> None:
    drawn = cells([[0.0, 0.0, 1.0], [1.0, 1.0, 1.0]], width=30, height=20)
    assert drawn.count("<rect") == 3
    with pytest.raises(ValueError, match="at least one"):
        cells([], width=1, height=1)


@pytest.mark.parametrize("top", [0.03, 0.9, 1.0, 1.25, 7.0, 64.0, 128.0, 1e5])
def test_ticks_are_round_few_and_within_the_axis(top: float) -> None:
    marks = ticks(top)
    step = marks[1] - marks[0]
    assert marks[0] == 0 and top - step < marks[-1] <= top * 1.001
    assert 3 <= len(marks) <= 6
    leading = step / 10 ** math.floor(math.log10(step) + 1e-9)
    assert any(leading == pytest.approx(round_one) for round_one in (1, 2, 5))
    assert all(mark == int(mark) for mark in ticks(top, least=1))


def texts(svg: str) -> list[str]:
    return [unescape(found) for found in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]


def test_a_heat_map_names_its_axes_and_has_the_letters_under_its_columns() -> None:
    letters = " a<b & c"
    drawn = heatmap([[0.1 * i] * len(letters) for i in range(9)], letters=letters, **WORDS)
    assert {"step", "position in the text", "0", "8", "1"} <= set(texts(drawn))
    assert letters in texts(drawn)
    under = re.search(r'<text x="([^"]*)" y="[^"]*"[^>]*monospace', drawn)
    assert under is not None
    places = [float(x) for x in under[1].split()]
    columns = cells([[0.0, 1.0] * 4], width=8 * LETTER, height=1)
    edges = [float(x) for x in re.findall(r'<rect x="([^"]*)"', columns)]
    assert len(places) == len(letters)
    assert [x - LETTER / 2 for x in places] == edges, "in the middle of the columns"
    assert letters not in texts(heatmap([[0.0] * 8], **WORDS))
    with pytest.raises(ValueError, match="8 columns need as many letters, got 2"):
        heatmap([[0.0] * 8], letters="ab", **WORDS)


def test_pictures_are_well_formed_and_say_what_they_show() -> None:
    curves = {"a & b": [(0.0, 0.0), (1.0, 0.9)]}
    for drawn in (heatmap([[0.0, 1.0]], letters="<>", **WORDS), lines(curves, **WORDS, **AXES)):
        root = ElementTree.fromstring(drawn)
        assert [child.text for child in root][:2] == ["a title", "a description"]
        assert root.get("role") == "img"
        assert not re.search(r"<text[^>]*fill", drawn), "text has the colour of the page"


def test_curves_are_told_apart_without_colour() -> None:
    names = [f"curve {i}" for i in range(6)]
    series = {name: [(0.0, 0.0), (0.5, 0.1 * i), (1.0, 0.9)] for i, name in enumerate(names)}
    drawn = lines(series, **WORDS, **AXES)
    assert len(set(re.findall(r'<polyline[^>]*dasharray="([^"]*)"', drawn))) == len(DASHES) == 6
    badges = re.findall(r"<circle[^>]*/><text[^>]*>(\d)</text>", drawn)
    assert sorted(badges) == sorted("123456" * 2), "on the curve and in the legend"
    assert set(names) <= set(texts(drawn))
    assert {"time", "height", "0", "0.2", "1"} <= set(texts(drawn))
    with pytest.raises(ValueError, match="at least one"):
        lines({}, **WORDS, **AXES)


def test_badges_stand_apart_even_where_curves_coincide() -> None:
    flat = [(i / 20, 0.0) for i in range(21)]
    series = {"a": flat, "b": flat, "c": [(x, x) for x, _ in flat]}
    drawn = lines(series, **WORDS, **AXES)
    circles = [
        (float(x), float(y), float(r))
        for x, y, r in re.findall(r'<circle cx="([^"]*)" cy="([^"]*)" r="([^"]*)"', drawn)
    ]
    (ax, ay, r), (bx, by, _), (_, cy, _) = circles[:3]
    assert ay == by and abs(ax - bx) > 2 * r
    assert ay - cy > 2 * r, "the third is off the line of the first two"
