"""The report in a real browser: every picture is drawn, nothing fails, nothing is fetched."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from dsl.cli.main import main

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
    "--window-size=1100,4000",
    "--virtual-time-budget=4000",
]


@pytest.fixture(scope="module")
def browser() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("chromium is not installed")
    return found


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demo") / "report.html"
    assert main(["demo", "--out", str(path)]) == 0
    return path


def open_in(browser: str, page: Path, *options: str) -> subprocess.CompletedProcess[str]:
    profile = page.parent / "profile"
    command = [browser, *FLAGS, f"--user-data-dir={profile}", *options, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


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
    assert bands >= 6, "five paths and the repair"
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
    assert done.stdout.count("<svg") == 8
    assert "One network, five paths" in done.stdout
    assert requests_of(browser, report) == set()
    picture = "http://127.0.0.1:9/picture.png"
    other = report.with_name("other.html")
    other.write_text(report.read_text().replace("</body>", f"<img src='{picture}'></body>"))
    assert requests_of(browser, other) == {picture}, "a page that fetches is found out"
