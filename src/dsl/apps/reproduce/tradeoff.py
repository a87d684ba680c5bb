"""Quality against denoiser calls, with error bars (the figure of E.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dsl.apps.reproduce.charts import panels
from dsl.evaluation import MEASURES

SHOWN = ("mauve", "genppl", "judged_bits", "sentence_entropy", "known_words",
         "valid", "novel", "fcd_test", "snn_test")  # fmt: skip


COLOURS, MARKERS = 10, "os^vD"
"""Colours before the marker changes, and the markers."""


def tradeoff(
    rows: Sequence[Mapping[str, Any]],
    held_out: Mapping[str, float],
    path: Path,
    *,
    scores: Sequence[str] = SHOWN,
) -> None:
    """Draw one panel for each score: a line for each model and sampler, and real text dashed.

    A line looks the same in every panel, and up to fifty lines are distinct.
    """
    present = [score for score in scores if any(score in row for row in rows)]
    if not present:
        raise ValueError(f"expected a score to draw ({', '.join(scores)}), got none")
    lines = dict.fromkeys((row["model"], row["sampler"]) for row in rows)
    drawn: dict[str, Any] = {}
    with panels(path, len(present), 4.2 * len(present) + 1.8, 3.4) as (figure, axes):
        for axis, score in zip(axes, present, strict=True):
            for number, line in enumerate(lines):
                points = sorted(
                    (row["nfe"], row[score], row.get(f"{score}_stderr") or 0.0)
                    for row in rows
                    if (row["model"], row["sampler"]) == line and score in row
                )
                if not points:
                    continue  # texts too short for this score
                x, y, error = zip(*points, strict=True)
                drawn[" ".join(line)] = axis.errorbar(
                    x,
                    y,
                    yerr=error,
                    color=f"C{number % COLOURS}",
                    marker=MARKERS[number // COLOURS % len(MARKERS)],
                    markersize=3,
                    capsize=2,
                )
            if held_out.get(score) is not None:
                real = axis.axhline(held_out[score], color="0.4", linestyle="--")
                drawn.setdefault("real text", real)
            axis.set_xscale("log", base=2)
            axis.set(xlabel="denoiser calls per sequence", ylabel=MEASURES.get(score, score))
        figure.legend(drawn.values(), drawn, loc="outside right upper", fontsize=6)
