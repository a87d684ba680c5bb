"""Curves as SVG text, told apart by number and dash as well as by colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dsl.figures.svg import Number, picture, text, ticks

COLOURS = ("#4053d3", "#8a6800", "#b51d14", "#007499", "#00743c", "#b01674")
ON_DARK = ("#98a6ff", "#ddb310", "#ff8379", "#00beff", "#00c268", "#fb82c8")
"""The same hues where the page is dark, which says so through the class of a curve."""
DASHES = ("none", "8 3", "2 3", "10 3 2 3", "5 5", "14 4")

Curve = Sequence[tuple[float, float]]
WIDTH, PLOT = 420, 200
LEFT, RIGHT, TOP = 42, 14, 26
RADIUS = 8
"""Of the badge that carries a curve's number."""


def lines(
    series: Mapping[str, Curve], *, title: str, description: str, x_name: str, y_name: str
) -> str:
    """Draw curves over axes from zero, with a legend below."""
    points = [point for curve in series.values() for point in curve]
    if not points:
        raise ValueError("a chart needs at least one point")
    x_marks = _axis(max(x for x, _ in points))
    y_marks = _axis(max(y for _, y in points))
    inner = WIDTH - LEFT - RIGHT
    parts = [text(4, 14, y_name, anchor="start")]
    for y in y_marks:
        at = PLOT * (1 - y / y_marks[-1])
        parts.append(_gridline(f"M{LEFT} {TOP + at:.1f}h{inner}", y == 0))
        parts.append(text(LEFT - 6, TOP + at + 4, f"{y:g}", anchor="end"))
    for x in x_marks:
        at = LEFT + inner * x / x_marks[-1]
        parts.append(_gridline(f"M{at:.1f} {TOP}v{PLOT}", x == 0))
        parts.append(text(at, TOP + PLOT + 16, f"{x:g}"))
    parts.append(text(LEFT + inner / 2, TOP + PLOT + 33, x_name))
    placed = {
        name: [
            (LEFT + inner * x / x_marks[-1], TOP + PLOT * (1 - y / y_marks[-1])) for x, y in curve
        ]
        for name, curve in series.items()
    }
    parts += [_curve(i, curve) for i, curve in enumerate(placed.values())]
    parts += [_badge(i, *_free(i, list(placed.values()))) for i in range(len(placed))]
    below = TOP + PLOT + 56
    parts += [_entry(i, name, below) for i, name in enumerate(series)]
    height = below + 22 * ((len(series) - 1) // 3) + 14
    return picture(parts, width=WIDTH, height=height, title=title, description=description)


def _axis(top: float) -> list[float]:
    """Mark an axis that holds 0 to `top`: its last mark is not below."""
    marks = ticks(top or 1.0)
    return marks if marks[-1] >= (top or 1.0) * 0.999 else [*marks, marks[-1] + marks[1]]


def _gridline(path: str, axis: bool) -> str:
    return f'<path d="{path}" stroke="currentColor" stroke-opacity="{0.8 if axis else 0.18}"/>'


def _curve(number: int, curve: Curve) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in curve)
    return f'<polyline points="{path}" fill="none" stroke-width="2" {_pen(number)}/>'


def _free(number: int, curves: Sequence[Curve]) -> tuple[float, float]:
    """Find where on its curve a badge stands furthest from the others.

    Where they coincide, each takes another share of the way, so that none hides another.
    """

    def at(curve: Curve, share: float) -> tuple[float, float]:
        return curve[round(share * (len(curve) - 1))]

    def distance(share: float) -> float:
        y = at(curves[number], share)[1]
        others = (curve for i, curve in enumerate(curves) if i != number)
        return min((abs(at(curve, share)[1] - y) for curve in others), default=0.0)

    best = max((i / 20 for i in range(2, 19)), key=distance)
    apart = distance(best) > 2 * RADIUS
    return at(curves[number], best if apart else (number + 0.5) / len(curves))


def _badge(number: int, x: Number, y: Number) -> str:
    """Draw a curve's number in a circle."""
    i = number % len(COLOURS)
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}" class="badge curve-{i}" fill="white" '
        f'stroke="{COLOURS[i]}" stroke-width="1.5"/>'
        f"{text(x, y + 4, str(number + 1), size=11)}"
    )


def _entry(number: int, name: str, y: Number) -> str:
    """Name a curve in the legend: its number, a piece of it, its name."""
    x = 14 + (WIDTH - 14) / 3 * (number % 3)
    y += 22 * (number // 3)
    piece = f'<path d="M{x + 10:.1f} {y:.1f}h24" stroke-width="2" {_pen(number)}/>'
    return f"{_badge(number, x, y)}{piece}{text(x + 38, y + 4, name, anchor='start')}"


def _pen(number: int) -> str:
    i = number % len(COLOURS)
    return f'class="curve-{i}" stroke="{COLOURS[i]}" stroke-dasharray="{DASHES[i]}"'
