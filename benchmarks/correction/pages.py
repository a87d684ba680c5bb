"""Printed pages with wear, read by Tesseract with its confidences."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dsl.apps.correct.formats import hocr
from dsl.apps.correct.reading import Reading

if TYPE_CHECKING:
    from PIL.Image import Image

FONTS = ("DejaVu Serif", "DejaVu Sans", "STIXGeneral")
"""Bundled with matplotlib, so that every machine prints the same pages. The third has the smallest
and thinnest letters, and is misread most."""
COLUMNS, SIZE, LEADING, BORDER = 72, 18, 10, 12
"""Characters in a line; font size, line spacing and border in pixels."""
READ = ("-c", "hocr_char_boxes=1", "-c", "lstm_choice_mode=2", "--psm", "6", "hocr")
"""Options of Tesseract: confidences and alternatives of every character, one block of text."""


@dataclass(frozen=True)
class Wear:
    """The wear of a page."""

    blur: float
    """The radius of the blur, in pixels."""
    noise: float
    """The standard deviation of the noise, of 255 shades of grey."""
    skew: float = 0.4
    """Maximum rotation, in degrees."""


WEAR = {"light": Wear(1.3, 16.0), "middle": Wear(1.4, 15.0), "heavy": Wear(1.4, 21.0)}
"""Three states of a page; the resulting error rate is measured, not set."""


def printed(text: str, font: str, wear: Wear, generator: np.random.Generator) -> Image:
    """Print a text, rotate the page, blur it and add noise."""
    from matplotlib import font_manager
    from PIL import Image, ImageDraw, ImageFilter, ImageFont

    face = ImageFont.truetype(font_manager.findfont(font), SIZE)
    lines = "\n".join(textwrap.wrap(text, COLUMNS))
    ink = ImageDraw.Draw(Image.new("L", (1, 1)))
    box = ink.multiline_textbbox((0, 0), lines, face, spacing=LEADING)
    size = (int(box[2]) + 2 * BORDER, int(box[3]) + 2 * BORDER)
    page = Image.new("L", size, 255)
    ink = ImageDraw.Draw(page)
    ink.multiline_text((BORDER, BORDER), lines, 0, face, spacing=LEADING)
    angle = generator.uniform(-wear.skew, wear.skew)
    turned = page.rotate(angle, Image.Resampling.BICUBIC, fillcolor=255)
    shades = np.asarray(turned.filter(ImageFilter.GaussianBlur(wear.blur)), dtype=float)
    noisy = shades + generator.normal(0, wear.noise, shades.shape)
    return Image.fromarray(noisy.clip(0, 255).astype("uint8"))


def recognised(page: Image) -> Reading:
    """Read a page with Tesseract."""
    if shutil.which("tesseract") is None:
        raise OSError("tesseract was not found: Debian's package is tesseract-ocr")
    with tempfile.TemporaryDirectory() as scratch:
        image = Path(scratch) / "page.png"
        page.save(image)
        command = ["tesseract", str(image), str(image.with_suffix("")), *READ]
        one_thread = os.environ | {"OMP_THREAD_LIMIT": "1"}
        subprocess.run(command, check=True, capture_output=True, env=one_thread)
        return hocr.read(image.with_suffix(".hocr").read_text(encoding="utf-8"))
