"""Small pictures as SVG text, for pages that must open anywhere without a drawing library.

Text and frames take the colour of the page around them, so a dark page needs no second picture.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

Number = int | float

LETTER = 7
"""Width of a column of a heat map: a monospace letter of 11 units fits."""


def shade(value: float) -> str:
    """Colour a number between 0 and 1: white, then yellow, then deep blue."""
    low, middle, high = (250, 250, 245), (253, 200, 80), (28, 44, 110)
    value = min(1.0, max(0.0, value))
    begin, end, t = (low, middle, 2 * value) if value < 0.5 else (middle, high, 2 * value - 1)
    red, green, blue = (round(a + (b - a) * t) for a, b in zip(begin, end, strict=True))
    return f"#{red:02x}{green:02x}{blue:02x}"


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours #rrggbb, between 1 and 21 (as WCAG defines it)."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def ink(background: str) -> str:
    """Choose black or white, whichever is easier to read on the background."""
    return max(("#000000", "#ffffff"), key=lambda colour: contrast(colour, background))


def ticks(top: Number, about: Number = 5, *, least: Number = 0) -> list[float]:
    """Mark an axis from 0 to at most `top`, in steps of 1, 2 or 5 times a power of ten."""
    rough = max(top / about, least)
    power: float = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    return [round(i * step, 12) for i in range(math.floor(top / step * 1.0001) + 1)]


def text(x: Number, y: Number, content: str, *, anchor: str = "middle", size: int = 13) -> str:
    """Write at a place."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">'
        f"{escape(content)}</text>"
    )


def picture(
    parts: Sequence[str], *, width: Number, height: Number, title: str, description: str
) -> str:
    """Put drawn parts into a picture that says in words what it shows."""
    return (
        f'<svg role="img" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" font-size="13" font-family="sans-serif" fill="currentColor">'
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>{''.join(parts)}</svg>"
    )


def cells(rows: Sequence[Sequence[float]], *, width: Number, height: Number) -> str:
    """Draw numbers between 0 and 1 as cells in a frame, a row for each step, downwards."""
    if not rows or not rows[0]:
        raise ValueError("a heat map needs at least one cell")
    columns = len(rows[0])
    w, h = width / columns, height / len(rows)
    drawn = []
    for y, row in enumerate(rows):
        x = 0
        while x < columns:  # cells of one colour side by side are one rectangle
            colour, end = shade(row[x]), x + 1
            while end < columns and shade(row[end]) == colour:
                end += 1
            drawn.append(
                f'<rect x="{x * w:.2f}" y="{y * h:.2f}" width="{(end - x) * w + 0.1:.2f}" '
                f'height="{h + 0.1:.2f}" fill="{colour}"/>'
            )
            x = end
    frame = f"M0 0h{width:g}v{height:g}h{-width:g}z"
    return (
        f'<g shape-rendering="crispEdges">{"".join(drawn)}</g>'
        f'<path d="{frame}" fill="none" stroke="currentColor" stroke-opacity="0.45"/>'
    )


def heatmap(
    rows: Sequence[Sequence[float]],
    *,
    title: str,
    description: str,
    letters: str = "",
    height: int = 170,
) -> str:
    """Draw cells with axes: steps down from 0, positions across from 1, letters underneath."""
    left, top, under = 46, 6, 46 if letters else 32
    if letters and len(letters) != len(rows[0]):
        raise ValueError(f"{len(rows[0])} columns need as many letters, got {len(letters)}")
    width = max(1, len(rows[0]) if rows else 0) * LETTER
    drawn = [cells(rows, width=width, height=height), _steps(len(rows), height)]
    if letters:
        drawn.append(_letters(letters, height + 13))
    drawn.append(_positions(len(rows[0]), height + under - 18))
    drawn.append(text(0, height + under - 3, "position in the text", anchor="start"))
    return picture(
        [f'<g transform="translate({left} {top})">{"".join(drawn)}</g>'],
        width=left + width + 12,
        height=top + height + under,
        title=title,
        description=description,
    )


def _steps(rows: int, height: Number) -> str:
    """Mark the rows on the left; row 0 is the start."""
    parts = [
        f'<text transform="translate(-34 {height / 2:g}) rotate(-90)" text-anchor="middle">'
        "step</text>"
    ]
    for step in ticks(rows - 1, 4, least=1):
        at = (step + 0.5) * height / rows
        parts.append(f'<path d="M-4 {at:.1f}h4" stroke="currentColor"/>')
        parts.append(text(-7, at + 4, f"{step:g}", anchor="end"))
    return "".join(parts)


def _positions(columns: int, y: Number) -> str:
    """Number the first column and every tenth, or fewer if there are many."""
    numbers = sorted({1.0, *ticks(columns, 13, least=10)[1:]})
    return "".join(text((n - 0.5) * LETTER, y, f"{n:g}") for n in numbers)


def _letters(letters: str, y: Number) -> str:
    """Write a letter under each column. One element, so that it can be read and copied as text."""
    places = " ".join(f"{(i + 0.5) * LETTER:g}" for i in range(len(letters)))
    return (
        f'<text x="{places}" y="{y:g}" text-anchor="middle" font-family="monospace" '
        f'font-size="11" style="white-space:pre" xml:space="preserve">{escape(letters)}</text>'
    )


def _luminance(colour: str) -> float:
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
