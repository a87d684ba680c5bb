"""Charts: the SNR of every token at every step (figure 1's idea), and curves along a path."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from dsl._util.files import parse_json
from dsl._util.html import COLOURS

SNR_COLOURS = LinearSegmentedColormap.from_list("snr", ["#fafaf5", "#fdc850", "#1c2c6e"])
"""White is SNR 0, yellow is in between, deep blue is a decided token."""
CURVES = [light for name, (light, _) in COLOURS.items() if name.startswith("curve")]
DASHES = ("-", "--", ":", "-.", (0, (5, 5)), (0, (10, 2, 2, 2)))
INK = COLOURS["ink"][0]
LOOK: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "dsl",  # the same picture is the same file
    "font.size": 10,
    **dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK
    ),
}
Records = Sequence[Mapping[str, Any]]


def read_trace(path: Path) -> list[dict[str, Any]]:
    """Read the first sequence of a file that `dsl sample --trace` wrote."""
    records = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        record = parse_json(line, f"{path}, line {number},")
        if number == 1 and isinstance(record, dict) and "about" in record:
            continue
        if not isinstance(record, dict) or not {"index", "snr"} <= set(record):
            raise ValueError(f"{path} is not a trace of `dsl sample --trace`: it has no SNRs")
        if not _are_snrs(record["snr"]):
            raise ValueError(f"{path}, line {number}: snr must be a list of numbers from 0")
        records.append(record)
    if not records:
        raise ValueError(f"{path} is empty")
    first = [record for record in records if record["index"] == records[0]["index"]]
    if len({len(record["snr"]) for record in first}) > 1:
        raise ValueError(f"{path}: all steps of a sequence must have as many SNRs")
    return first


def _are_snrs(found: Any) -> bool:
    return (
        isinstance(found, list)
        and bool(found)
        and all(type(snr) in (int, float) and 0 <= snr < 1e300 for snr in found)
    )


def brightness(records: Records) -> list[list[float]]:
    """Return log(1 + γ) / log(1 + γ_max) of every token, one row per step.

    γ_max is the highest SNR of the path, that of a decided token.
    """
    top = math.log1p(max(max(record["snr"]) for record in records)) or 1.0
    return [[math.log1p(snr) / top for snr in record["snr"]] for record in records]


def paths(traces: Mapping[str, Records], path: Path) -> None:
    """Draw several paths side by side into a file: steps run down, positions across."""
    with matplotlib.rc_context(LOOK):
        figure = Figure(figsize=(0.4 + 2.7 * len(traces), 2.2), layout="constrained")
        panels = figure.subplots(1, len(traces), squeeze=False)[0]
        for panel, (name, records) in zip(panels, traces.items(), strict=True):
            _heat_map(panel, records)
            panel.set_title(name, loc="left", fontsize=10)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def heat_map(records: Records, *, letters: str = "", title: str, description: str) -> str:
    """Draw one path as SVG; `letters` are written under its columns."""
    if letters and len(letters) != len(records[0]["snr"]):
        raise ValueError(f"expected {len(records[0]['snr'])} letters, got {len(letters)}")
    with matplotlib.rc_context(LOOK):
        figure = Figure(figsize=(9.6, 2.4), layout="constrained")
        panel = figure.subplots()
        _heat_map(panel, records)
        if letters:
            panel.set_xticks(range(1, len(letters) + 1), list(letters), family="monospace")
            panel.tick_params(axis="x", length=0)
        return inline(figure, title=title, description=description)


def _heat_map(panel: Axes, records: Records) -> None:
    rows = brightness(records)
    panel.imshow(
        rows, SNR_COLOURS, aspect="auto", interpolation="none", vmin=0, vmax=1,
        extent=(0.5, len(rows[0]) + 0.5, len(rows) - 0.5, -0.5),
    )  # fmt: skip
    panel.set_xlabel("position")
    panel.set_ylabel("step")
    panel.locator_params(integer=True)


def lines(
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    title: str,
    description: str,
    x_name: str,
    y_name: str,
) -> str:
    """Draw curves over axes from zero as SVG, with a legend below."""
    if not any(series.values()):
        raise ValueError("a chart needs at least one point")
    with matplotlib.rc_context(LOOK):
        figure = Figure(figsize=(4.6, 3.6), layout="constrained")
        panel = figure.subplots()
        for number, (name, curve) in enumerate(series.items()):
            pen = number % len(CURVES)
            panel.plot(*zip(*curve, strict=True), color=CURVES[pen], ls=DASHES[pen], label=name)
        panel.set(xlabel=x_name, ylabel=y_name, xlim=(0, None), ylim=(0, None))
        panel.grid(alpha=0.3)
        figure.legend(loc="outside lower center", ncols=3, frameon=False)
        return inline(figure, title=title, description=description)


def inline(figure: Figure, *, title: str, description: str) -> str:
    """Return a figure as an SVG element of a page, in the colours of the page."""
    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    drawn = file.getvalue()
    box = re.search(r'viewBox="[^"]*"', drawn)
    assert box is not None
    drawn = drawn[drawn.index("</metadata>") + len("</metadata>") :]
    drawn = re.sub(r'<g id="[^"]*"', "<g", drawn)  # a page has several figures
    for name, (light, _) in COLOURS.items():
        drawn = drawn.replace(light, f"var(--{name})")
    return (
        f'<svg role="img" {box[0]}><title>{escape(title)}</title>'
        f"<desc>{escape(description)}</desc>{drawn.strip()}"
    )
