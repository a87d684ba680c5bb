from __future__ import annotations

import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from dsl.apps.correct import Correction, section
from dsl.apps.correct.formats import plain
from dsl.apps.correct.reading import Edit
from dsl.apps.demo.page import Walk, page
from dsl.cli.demo import require_writable
from dsl.cli.main import main

VOID = {"meta", "link", "br"}
TEXT = "a <b> & c"


class Balanced(HTMLParser):
    """Refuses tags that are not closed, headings that skip a level, and what would be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.level = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if found := re.fullmatch(r"h(\d)", tag):
            assert int(found[1]) <= self.level + 1, "a heading skips a level"
            self.level = int(found[1])
        if tag in ("p", "ul", "dl", "table", "figure", "div", "h2", "h3"):
            assert "p" not in self.open, f"<{tag}> ends a paragraph early"
        for name, value in attrs:
            if name in ("src", "href"):
                assert (value or "").startswith(("data:", "#")), f"{tag} fetches {value}"
        assert len({name for name, _ in attrs}) == len(attrs), f"{tag} repeats an attribute"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    @classmethod
    def read(cls, html: str) -> Balanced:
        parser = cls()
        parser.feed(html)
        assert not parser.open
        return parser


def records(n: int, length: int) -> list[dict[str, object]]:
    return [
        {
            "snr": [100.0 * i / n] * length,
            "mean_max_prob": i / n,
            "remasks_per_token": 0.1 * i,
        }
        for i in range(n + 1)
    ]


def example(length: int = len(TEXT)) -> str:
    walks = [Walk(n, "mdlm@4", TEXT, 4, 0.1, 2.5, 0.1, records(4, length)) for n in ("one", "two")]
    reading = plain.read("he_l<", gap="_")
    edits = [Edit(2, 1, "", "l", 0.9), Edit(4, 1, "<", "o", 0.8)]
    shown = section(Correction(reading, edits, [0.0] * 5, "tiny"), level=3)
    return page("tiny", walks, [("a [2] b", "a xy b")], shown, 0)


def test_the_page_stands_on_its_own_and_escapes_text() -> None:
    html = example()
    seen = Balanced.read(html).seen
    assert seen.count("svg") == seen.count("desc") == 2 + 2
    assert seen.count("h1") == seen.count("main") == 1
    assert seen.count("table") == 2
    assert html.count("very token is revealed once") == 2
    assert "a &lt;b&gt; &amp; c" in html and "http" not in html
    assert "a <ins>xy</ins> b" in html
    assert "<del>&lt;</del><ins>o</ins>" in html


def test_applications_come_first() -> None:
    heads = re.findall(r"<h2>(.*?)</h2>", example())
    assert heads[:3] == ["Correcting a noisy text", "Filling a gap", "One network, five paths"]


def test_the_demo_says_what_it_cannot_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--model", "oracle:cyclic-7", "--out", str(tmp_path / "r.html")]) == 1
    assert "outside the model's vocabulary" in capsys.readouterr().err
    assert main(["demo", "--model", "text8-tiny-mdlm", "--out", str(tmp_path / "r.html")]) == 1
    assert "needs DSL models" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [], "the attempt leaves nothing behind"


@pytest.mark.parametrize(
    "name, message",
    [
        ("none/r.html", "there is no directory"),
        (".", "Is a directory"),
        ("x" * 300, "cannot be written to"),
        ("locked/r.html", "cannot be written to"),
    ],
)
def test_a_report_that_cannot_be_written_is_refused_before_any_work(
    name: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def works(*_: object) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("dsl.checkpoints.loading.load", works)
    (tmp_path / "locked").mkdir(mode=0o500)
    if name.startswith("locked") and os.access(tmp_path / "locked", os.W_OK):
        # To this user nothing is locked: give the answer that others get.
        monkeypatch.setattr(Path, "open", _denied)
    assert main(["demo", "--out", str(tmp_path / name)]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def _denied(self: Path, *_: object) -> None:
    raise PermissionError(13, "Permission denied", str(self))


def test_asking_whether_a_file_can_be_written_changes_nothing(tmp_path: Path) -> None:
    old, new, link = tmp_path / "old", tmp_path / "new", tmp_path / "link"
    old.write_text("kept")
    link.symlink_to(tmp_path / "later")
    for path in (old, new, link):
        require_writable(path)
    assert old.read_text() == "kept" and not new.exists()
    assert link.is_symlink() and not link.exists()
