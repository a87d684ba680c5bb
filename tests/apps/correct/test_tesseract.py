"""A real recogniser reads a page, and what it doubts is corrected."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from dsl.apps.correct.formats import read_file
from dsl.apps.correct.trust import distance
from dsl.cli.main import main

WRITTEN = (
    "The capital of the country is an old town on both sides of a river. Its first bridge was\n"
    "built of wood in the twelfth century, and destroyed by a flood. The second was of stone,\n"
    "with nine arches, and is still in use. Most of the people who live there work in the\n"
    "harbour, or in one of the factories that make paper, glass and furniture."
)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """Print a page, blur it, sprinkle it with noise, and let Tesseract read it."""
    image = pytest.importorskip("PIL.Image")
    from matplotlib import font_manager
    from PIL import ImageDraw, ImageFilter, ImageFont

    font = ImageFont.truetype(font_manager.findfont("DejaVu Serif"), 22)
    drawn = image.new("L", (1240, 260), 255)
    ImageDraw.Draw(drawn).multiline_text((60, 60), WRITTEN, font=font, fill=0, spacing=10)
    blurred = np.asarray(drawn.filter(ImageFilter.GaussianBlur(0.8)), dtype=float)
    noise = np.random.default_rng(1).normal(0, 42, blurred.shape)
    path = tmp_path / "page.png"
    image.fromarray((blurred + noise).clip(0, 255).astype("uint8")).save(path)
    options = ["-c", "hocr_char_boxes=1", "-c", "lstm_choice_mode=2", "--psm", "6", "hocr"]
    command = ["tesseract", str(path), str(tmp_path / "page"), *options]
    subprocess.run(
        command, check=True, capture_output=True, env=os.environ | {"OMP_THREAD_LIMIT": "1"}
    )
    return tmp_path / "page.hocr"


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("tesseract") is None and not os.environ.get("DSL_NO_SKIP"),
    reason="tesseract is not installed",
)
def test_a_page_goes_from_picture_to_corrected_text(page: Path, tmp_path: Path) -> None:
    out = tmp_path / "better.hocr"
    assert main(["correct", str(page), "--out", str(out)]) == 0
    before, after = (read_file(path, path.read_bytes()) for path in (page, out))
    assert before.kind == after.kind == "hocr"
    assert any(symbol.confidence is not None for symbol in before.symbols)

    def markup(path: Path) -> list[str]:
        return re.findall(r"<[^>]*>", path.read_text())

    assert markup(page) == markup(out), "only what was read changes"
    wrong = [distance(" ".join(r.text.split()), " ".join(WRITTEN.split())) for r in (before, after)]
    assert 0 < wrong[0] < 0.25 * len(WRITTEN), "the page is hard to read, but readable"
    assert wrong[1] <= wrong[0]
