"""The report in a real browser: every picture is drawn, nothing fails, nothing is fetched."""

from __future__ import annotations

import contextlib
import html
import io
import json
import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dsl.cli.main import main
from tests.apps.demo.test_report import Balanced

pytestmark = pytest.mark.slow
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--enable-logging=stderr",
    "--hide-scrollbars",
    "--window-size=1100,5000",
    "--virtual-time-budget=4000",
]


@pytest.fixture(scope="module")
def browser() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("chromium is not installed")
    return found


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The report of `dsl demo`, and what the command printed."""
    path, shown = tmp_path_factory.mktemp("demo") / "report.html", io.StringIO()
    with contextlib.redirect_stdout(shown):
        assert main(["demo", "--out", str(path)]) == 0
    return path, shown.getvalue()


@pytest.fixture(scope="module")
def report(demo: tuple[Path, str]) -> Path:
    return demo[0]


def test_the_demo_writes_its_report(demo: tuple[Path, str]) -> None:
    path, shown = demo
    assert "report.html" in shown.replace("\n", "")
    assert all(name in shown for name in ("MDLM", "ReMDM-loop", "ROAR", "causal", "hybrid"))
    assert shown.index("mended") < shown.index("Filling a gap") < shown.index("five paths")
    assert Balanced.read(path.read_text()).seen.count("svg") == 5 + 2


def open_in(browser: str, page: Path, *options: str) -> subprocess.CompletedProcess[str]:
    profile = page.parent / "profile"
    command = [browser, *FLAGS, f"--user-data-dir={profile}", *options, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True)


def test_every_figure_is_drawn(browser: str, report: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    shot = report.with_suffix(".png")
    done = open_in(browser, report, f"--screenshot={shot}")
    assert done.returncode == 0, done.stderr
    assert "CONSOLE" not in done.stderr, done.stderr
    picture = image.open(shot).convert("RGB")
    colours = {colour for _, colour in picture.getcolors(maxcolors=1 << 24)}
    assert (28, 44, 110) in colours, "decided tokens are deep blue"
    assert len(colours) > 300
    # a band of deep blue in each heat map: count the bands from top to bottom
    width, height = picture.size
    pixels = picture.load()
    column = [any(pixels[x, y] == (28, 44, 110) for x in range(0, width, 3)) for y in range(height)]
    bands = sum(1 for a, b in pairwise(column) if b and not a)
    assert bands >= 5, "five paths"
    wrong = report.with_name("wrong.html")
    wrong.write_text(report.read_text().replace("</body>", "<script>nothing()</script></body>"))
    assert "CONSOLE" in open_in(browser, wrong, f"--screenshot={shot}").stderr, "errors are seen"


def requests_of(browser: str, page: Path) -> set[str]:
    """List what a page asked for; the browser's own errands have no origin that began them."""
    log = page.with_suffix(".netlog")
    done = open_in(browser, page, "--dump-dom", f"--log-net-log={log}")
    assert done.returncode == 0, done.stderr
    text = log.read_text(errors="replace").rstrip()
    events = json.loads(text if text.endswith("}") else text.rstrip(",") + "]}")["events"]
    asked = [event["params"] for event in events if "url" in event.get("params", {})]
    by_pages = (p for p in asked if p.get("initiator", "not an origin") != "not an origin")
    return {
        p["url"] for p in by_pages if not re.match("(file|data|chrome|about|devtools)", p["url"])
    }


def test_the_page_is_whole_and_fetches_nothing(browser: str, report: Path) -> None:
    done = open_in(browser, report, "--dump-dom")
    assert done.stdout.count("<svg") == 7
    assert "One network, five paths" in done.stdout
    assert requests_of(browser, report) == set()
    picture = "http://127.0.0.1:9/picture.png"
    other = report.with_name("other.html")
    other.write_text(report.read_text().replace("</body>", f"<img src='{picture}'></body>"))
    assert requests_of(browser, other) == {picture}, "a page that fetches is found out"


LOOK = """
const frame = document.querySelector('iframe');
frame.onload = () => {
  const page = frame.contentDocument, root = page.documentElement;
  const outside = [...page.body.querySelectorAll('*')].filter(e => {
    const box = e.getBoundingClientRect();
    return !e.parentElement.closest('.scroll, svg') && (box.left < 0 || box.right > 400.5);
  });
  const size = e => {
    const {a, b} = e.getScreenCTM ? e.getScreenCTM() : {a: 1, b: 0};
    return parseFloat(getComputedStyle(e).fontSize) * Math.hypot(a, b);
  };
  document.documentElement.dataset.seen = JSON.stringify({
    width: root.clientWidth,
    scrolled: root.scrollWidth,
    outside: outside.map(e => e.outerHTML.slice(0, 100)),
    smallest: Math.min(...[...page.querySelectorAll('p, td, th, small, svg text')].map(size)),
    ground: frame.contentWindow.getComputedStyle(page.body).backgroundColor,
    ink: frame.contentWindow.getComputedStyle(page.querySelector('svg text')).fill,
  });
};
"""


def look(browser: str, report: Path, *options: str, change: str = "") -> dict[str, Any]:
    """Lay the page out 400 wide, in a frame since no window is as narrow, and measure it."""
    outer = report.with_name("narrow.html")
    inner = html.escape(report.read_text().replace("</body>", f"{change}</body>"))
    outer.write_text(
        '<!doctype html><meta name="color-scheme" content="light dark">'
        f'<iframe style="width:400px;height:800px;border:0" srcdoc="{inner}"></iframe>'
        f"<script>{LOOK}</script>"
    )
    done = open_in(browser, outer, "--dump-dom", *options)
    found = re.search('data-seen="([^"]*)"', done.stdout)
    assert found is not None, done.stderr
    seen: dict[str, Any] = json.loads(html.unescape(found[1]))
    return seen


def brightness(colour: str) -> float:
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / (3 * 255)


def test_nothing_is_cut_off_on_a_narrow_screen(browser: str, report: Path) -> None:
    seen = look(browser, report)
    assert seen["width"] == 400
    assert seen["scrolled"] <= 400
    assert seen["outside"] == []
    assert seen["smallest"] >= 9.5
    wide = look(browser, report, change="<p style='width:500px'>wide</p>")
    assert wide["scrolled"] > 400 and len(wide["outside"]) == 1, "what is too wide is found out"


def test_the_page_is_dark_where_the_reader_wants_it(browser: str, report: Path) -> None:
    light = look(browser, report)
    dark = look(browser, report, "--blink-settings=preferredColorScheme=0")
    assert brightness(light["ground"]) > 0.9 > 0.3 > brightness(light["ink"])
    assert brightness(dark["ground"]) < 0.2 < 0.7 < brightness(dark["ink"])
