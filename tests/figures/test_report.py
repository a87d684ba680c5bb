from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from dsl.cli.main import main
from dsl.figures.report import Repair, Walk, page
from dsl.figures.svg import heatmap, lines, shade

VOID = {"meta", "link", "br"}


class Balanced(HTMLParser):
    """Refuses tags that are not closed, and anything that would be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.pictures = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.pictures += tag == "svg"
        for name, value in attrs:
            if name in ("src", "href"):
                assert (value or "").startswith("data:"), f"{tag} fetches {value}"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def records(n: int) -> list[dict[str, object]]:
    return [
        {"snr": [0.0, 100.0 * i / n], "mean_max_prob": i / n, "remasks_per_token": 0.1 * i}
        for i in range(n + 1)
    ]


def test_the_page_stands_on_its_own_and_escapes_text() -> None:
    walks = [Walk(n, "mdlm@4", "a <b> & c", 4, 0.1, 2.5, 0.1, records(4)) for n in ("one", "two")]
    mended = Repair("he_l<", [0.9, 0.9, 0.0, 0.5, 0.9], "hello", [0.9, 0.9, 0.6, 0.7, 0.8])
    html = page("tiny", walks, [("a [2] b", "a xy b")], mended, 0)
    parser = Balanced()
    parser.feed(html)
    assert not parser.open
    assert parser.pictures == 2 + 2 + 1
    assert html.count("every token is revealed once") == 2
    assert "a &lt;b&gt; &amp; c" in html and "http" not in html
    assert '<b class="gap">xy</b>' in html
    assert '<s>&lt;</s><b class="mended">o</b>' in html


def test_pictures_say_what_they_show() -> None:
    assert shade(0.0) != shade(0.5) != shade(1.0)
    assert shade(-3.0) == shade(0.0) and shade(7.0) == shade(1.0)
    cells = heatmap([[0.0, 0.0, 1.0], [1.0, 1.0, 1.0]], label="x")
    assert cells.count("<rect") == 3, "neighbours of one colour are one rectangle"
    chart = lines({"a": [(0.0, 0.0), (1.0, 0.9)]}, label="y", x_name="t")
    assert chart.count("<polyline") == 1
    assert re.search(r">1</text>", chart), "the axis ends at a round number"
    for empty in (lambda: heatmap([], label="x"), lambda: lines({}, label="x", x_name="t")):
        with pytest.raises(ValueError, match="at least one"):
            empty()


@pytest.mark.slow
def test_the_demo_writes_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo"]) == 0
    shown = capsys.readouterr().out
    assert "report.html" in shown.replace("\n", "")
    assert all(name in shown for name in ("MDLM", "ReMDM-loop", "ROAR", "causal", "hybrid"))
    parser = Balanced()
    parser.feed(Path("report.html").read_text())
    assert parser.pictures == 5 + 2 + 1


def test_the_demo_says_what_it_cannot_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--out", str(tmp_path / "none" / "r.html")]) == 1
    assert "there is no directory" in capsys.readouterr().err
    assert main(["demo", "--model", "oracle:cyclic-7", "--out", str(tmp_path / "r.html")]) == 1
    assert "outside the model's vocabulary" in capsys.readouterr().err
    assert main(["demo", "--model", "text8-tiny-mdlm", "--out", str(tmp_path / "r.html")]) == 1
    assert "needs a DSL model" in capsys.readouterr().err
