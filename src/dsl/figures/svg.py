"""Small pictures as SVG text, for pages that must open anywhere without a drawing library."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

COLOURS = ("#4053d3", "#ddb310", "#b51d14", "#00beff", "#00b25d", "#fb49b0")
"""Told apart with any kind of colour vision."""


def shade(value: float) -> str:
    """Colour a number between 0 and 1: white, then yellow, then deep blue."""
    low, middle, high = (250, 250, 245), (253, 200, 80), (28, 44, 110)
    value = min(1.0, max(0.0, value))
    begin, end, t = (low, middle, 2 * value) if value < 0.5 else (middle, high, 2 * value - 1)
    red, green, blue = (round(a + (b - a) * t) for a, b in zip(begin, end, strict=True))
    return f"#{red:02x}{green:02x}{blue:02x}"


def heatmap(
    rows: Sequence[Sequence[float]], *, label: str, width: int = 640, height: int = 160
) -> str:
    """Draw numbers between 0 and 1 as cells, a row for each step from top to bottom."""
    if not rows or not rows[0]:
        raise ValueError("a heat map needs at least one cell")
    columns, lines = len(rows[0]), len(rows)
    w, h = width / columns, height / lines
    cells = []
    for y, row in enumerate(rows):
        x = 0
        while x < columns:  # cells of one colour side by side are one rectangle
            colour, end = shade(row[x]), x + 1
            while end < columns and shade(row[end]) == colour:
                end += 1
            cells.append(
                f'<rect x="{x * w:.2f}" y="{y * h:.2f}" width="{(end - x) * w + 0.1:.2f}" '
                f'height="{h + 0.1:.2f}" fill="{colour}"/>'
            )
            x = end
    return (
        f'<svg role="img" aria-label="{escape(label)}" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" shape-rendering="crispEdges">{"".join(cells)}</svg>'
    )


def lines(
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    label: str,
    x_name: str,
    width: int = 460,
    height: int = 280,
) -> str:
    """Draw curves with axes from zero and a legend."""
    points = [point for curve in series.values() for point in curve]
    if not points:
        raise ValueError("a chart needs at least one point")
    x_top = max(x for x, _ in points) or 1.0
    y_top = _round_up(max(y for _, y in points) or 1.0)
    left, right, top, bottom = 44, 10, 12, 36
    inner_w, inner_h = width - left - right, height - top - bottom

    def place(x: float, y: float) -> str:
        return f"{left + x / x_top * inner_w:.1f},{top + (1 - y / y_top) * inner_h:.1f}"

    parts = []
    for i in range(5):
        y = y_top * i / 4
        at = top + (1 - i / 4) * inner_h
        parts.append(f'<line x1="{left}" x2="{width - right}" y1="{at}" y2="{at}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 5}" y="{at + 4}" text-anchor="end">{y:g}</text>')
    parts.append(
        f'<text x="{left + inner_w / 2}" y="{height - 6}" text-anchor="middle">{escape(x_name)}'
        f" (0 to {x_top:g})</text>"
    )
    for number, (name, curve) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(place(x, y) for x, y in curve)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        at = top + 14 + 15 * number
        parts.append(f'<rect x="{left + 8}" y="{at - 8}" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{left + 23}" y="{at + 1}">{escape(name)}</text>')
    return (
        f'<svg role="img" aria-label="{escape(label)}" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-size="11" font-family="sans-serif">'
        f"{''.join(parts)}</svg>"
    )


def _round_up(value: float) -> float:
    """Return the next of 1, 2, 5, 10, … times a power of ten."""
    power: float = 10.0 ** math.floor(math.log10(value))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= value * 0.999)
