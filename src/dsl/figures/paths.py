"""Paths through SNR space side by side: the SNR of every token at every step (figure 1's idea)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from dsl.figures.svg import heatmap

PANEL, GAP, CAPTION = (250, 150), 18, 20


def brightness(records: Sequence[Mapping[str, Any]]) -> list[list[float]]:
    """Return log(1 + γ) / log(1 + γ_max) of every token, a row for each step.

    γ_max is the highest SNR of the path: where its tokens are read off.
    """
    top = math.log1p(max(max(record["snr"]) for record in records)) or 1.0
    return [[math.log1p(snr) / top for snr in record["snr"]] for record in records]


def read_trace(path: Path) -> list[dict[str, Any]]:
    """Read the first sequence of a file that `dsl sample --trace` wrote."""
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {number}, is not JSON: {error}") from error
        if not isinstance(record, dict) or not {"index", "snr"} <= set(record):
            raise ValueError(f"{path} is not a trace that `dsl sample --trace` wrote: no SNRs")
        records.append(record)
    if not records:
        raise ValueError(f"{path} is empty")
    return [record for record in records if record["index"] == records[0]["index"]]


def paths(traces: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Draw the panels of several paths in one row, time running down."""
    width, height = PANEL
    panels = []
    for number, (name, records) in enumerate(traces.items()):
        picture = heatmap(brightness(records), label=name, width=width, height=height)
        x = number * (width + GAP)
        panels.append(
            f'<g transform="translate({x} 0)"><text x="0" y="14">{escape(name)}</text>'
            f'<g transform="translate(0 {CAPTION})"><rect width="{width}" height="{height}" '
            f'fill="none" stroke="#bbb"/>{picture}</g></g>'
        )
    whole = len(traces) * (width + GAP) - GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {whole} '
        f'{height + CAPTION}" width="{whole}" height="{height + CAPTION}" font-size="13" '
        f'font-family="sans-serif"><rect width="100%" height="100%" fill="white"/>'
        f"{''.join(panels)}</svg>\n"
    )
