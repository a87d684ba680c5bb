from __future__ import annotations

import base64
import io
import re
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from matplotlib import image

from dsl._util.html import COLOURS, style
from dsl.apps.demo.charts import DASHES, SNR_COLOURS, heat_map, lines
from dsl.cli.main import main

WORDS = {"title": "a title", "description": "a description"}
AXES = {"x_name": "time", "y_name": "height"}
RGB = tuple[int, ...]


def cells(svg: str) -> set[RGB]:
    """Return the colours of the picture in a heat map."""
    (data,) = re.findall(r"data:image/png;base64,([^\"]*)", svg)
    pixels = image.imread(io.BytesIO(base64.b64decode(data)), format="png")
    return {tuple(round(255 * float(c)) for c in pixel[:3]) for row in pixels for pixel in row}


def colour(value: float) -> RGB:
    red, green, blue, _ = SNR_COLOURS(value, bytes=True)
    return int(red), int(green), int(blue)


def colours(tmp_path: Path, sampler: str) -> set[RGB]:
    trace, out = tmp_path / f"{sampler}.jsonl", tmp_path / "paths.svg"
    job = ["sample", "-n", "2", "--model", "oracle:cyclic-7", "--sampler", sampler]
    assert main([*job, "--trace", str(trace)]) == 0
    assert main(["reproduce", "figure", "paths", str(trace), "--out", str(out)]) == 0
    return cells(out.read_text())


def test_masked_paths_jump_and_continuous_ones_pass_through(tmp_path: Path) -> None:
    ends = {colour(0.0), colour(1.0)}
    assert colours(tmp_path, "mdlm@4") == ends
    assert colours(tmp_path, "localize@9") > ends


@pytest.mark.parametrize(
    "content, message",
    [
        ("", "is empty"),
        ("{]", "line 1, is not JSON"),
        ('{"snr": [1]}', "no SNRs"),
        ('{"index": 0, "snr": [-1]}', "snr must be a list of numbers"),
        ('{"index": 0, "snr": [1]}\n{"index": 0, "snr": [1, 2]}', "as many SNRs"),
    ],
)
def test_what_is_no_trace_is_refused(
    content: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text(content)
    assert main(["reproduce", "figure", "paths", str(trace), "--out", str(tmp_path / "p.svg")]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "p.svg").exists()


def luminance(colour: str) -> float:
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """The contrast of two colours #rrggbb, between 1 and 21, as WCAG defines it."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_all_text_is_readable_on_light_and_on_dark_pages(theme: int) -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    found = {name: pair[theme] for name, pair in COLOURS.items()}
    curves = [name for name in found if name.startswith("curve")]
    assert len(curves) == len(DASHES)
    pairs = [(name, "page") for name in ("ink", "soft", "old", *curves)]
    for text, ground in [*pairs, ("ink", "new"), ("ink", "open")]:
        assert contrast(found[text], found[ground]) >= 4.5, (text, ground)
    assert all(f"--{name}: {colour};" in style() for name, colour in found.items())


def texts(svg: str) -> list[str]:
    return [unescape(found) for found in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]


def records(rows: int, columns: int) -> list[dict[str, Any]]:
    return [{"snr": [10.0 * i] * columns} for i in range(rows)]


def test_a_heat_map_names_its_axes_and_has_the_letters_under_its_columns() -> None:
    letters = "a<b&c"
    drawn = heat_map(records(9, 5), letters=letters, **WORDS)
    assert {"step", "position", "0", "8"} <= set(texts(drawn))
    found = re.findall(r'<text[^>]* x="([^"]*)"[^>]*>([^<]*)</text>', drawn)
    under = {unescape(text): float(x) for x, text in found if unescape(text) in letters}
    assert "".join(sorted(under, key=lambda text: under[text])) == letters, "in order"
    assert not set(letters) & set(texts(heat_map(records(2, 5), **WORDS)))
    with pytest.raises(ValueError, match="expected 8 letters, got 2"):
        heat_map(records(1, 8), letters="ab", **WORDS)


def test_pictures_are_well_formed_and_take_the_colours_of_the_page() -> None:
    curves = {"a & b": [(0.0, 0.0), (1.0, 0.9)]}
    for drawn in (heat_map(records(2, 2), letters="<>", **WORDS), lines(curves, **WORDS, **AXES)):
        root = ElementTree.fromstring(drawn.replace("xlink:", ""))
        assert [child.text for child in root][:2] == ["a title", "a description"]
        assert root.get("role") == "img" and root.get("viewBox") and not root.get("width")
        assert "var(--ink)" in drawn and not re.search(r' id="(figure|axes)', drawn)
        assert all(light not in drawn for light, _ in COLOURS.values())


def test_curves_can_be_told_apart_without_colour() -> None:
    names = [f"curve {i}" for i in range(6)]
    series = {name: [(0.0, 0.0), (0.5, 0.1 * i), (1.0, 0.9)] for i, name in enumerate(names)}
    drawn = lines(series, **WORDS, **AXES)
    pens = re.findall(r'style="fill: none;([^"]*stroke: var\(--curve\d\)[^"]*)"', drawn)
    dashes = [re.findall(r"stroke-dasharray: ([^;]*)", pen) for pen in pens]
    assert len({tuple(dash) for dash in dashes}) == len(DASHES) == 6
    assert {*names, "time", "height"} <= set(texts(drawn))
    with pytest.raises(ValueError, match="at least one"):
        lines({}, **WORDS, **AXES)
