"""Paths through SNR space side by side: the SNR of every token at every step (figure 1's idea)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from dsl._util.files import parse_json
from dsl.apps.demo.svg import cells, text

PANEL, GAP, CAPTION, LEFT = (250, 150), 18, 20, 20


def brightness(records: Sequence[Mapping[str, Any]]) -> list[list[float]]:
    """Return log(1 + γ) / log(1 + γ_max) of every token, a row for each step.

    γ_max is the highest SNR of the path: where its tokens are read off.
    """
    top = math.log1p(max(max(record["snr"]) for record in records)) or 1.0
    return [[math.log1p(snr) / top for snr in record["snr"]] for record in records]


def read_trace(path: Path) -> list[dict[str, Any]]:
    """Read the first sequence of a file that `dsl sample --trace` wrote."""
    records = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        record = parse_json(line, f"{path}, line {number},")
        if not isinstance(record, dict) or not {"index", "snr"} <= set(record):
            raise ValueError(f"{path} is not a trace that `dsl sample --trace` wrote: no SNRs")
        if not _are_snrs(record["snr"]):
            raise ValueError(f"{path}, line {number}, has no list of SNRs, but something else")
        records.append(record)
    if not records:
        raise ValueError(f"{path} is empty")
    return [record for record in records if record["index"] == records[0]["index"]]


def _are_snrs(found: Any) -> bool:
    return (
        isinstance(found, list)
        and bool(found)
        and all(type(snr) in (int, float) and 0 <= snr < 1e300 for snr in found)
    )


def paths(traces: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Draw the panels of several paths in one row: steps run down, positions across."""
    width, height = PANEL
    panels = []
    for number, (name, records) in enumerate(traces.items()):
        rows = brightness(records)
        x, below = LEFT + number * (width + GAP), CAPTION + height + 16
        panels.append(
            f'<g transform="translate({x} 0)"><text y="14">{escape(name)}</text>'
            f'<g transform="translate(0 {CAPTION})">{cells(rows, width=width, height=height)}</g>'
            f"{text(0, below, '1', anchor='start', size=11)}"
            f"{text(width / 2, below, 'position', size=11)}"
            f"{text(width, below, str(len(rows[0])), anchor='end', size=11)}</g>"
        )
    axis = (
        f'<text transform="translate(12 {CAPTION + height / 2:g}) rotate(-90)" '
        f'text-anchor="middle" font-size="11">step, downwards</text>'
    )
    whole, tall = LEFT + len(traces) * (width + GAP) - GAP + 2, CAPTION + height + 20
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {whole} {tall}" '
        f'width="{whole}" height="{tall}" font-size="13" font-family="sans-serif">'
        f"<title>The SNR of every token at every step: {escape(', '.join(traces))}</title>"
        "<desc>White is SNR 0, yellow is in between, deep blue is a decided token.</desc>"
        f'<rect width="100%" height="100%" fill="white"/>{axis}{"".join(panels)}</svg>\n'
    )
