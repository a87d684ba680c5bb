"""Quality against denoiser calls, with error bars (the figure of E.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dsl.evaluation import MEASURES

SHOWN = ("mauve", "genppl", "judged_bits", "sentence_entropy", "known_words",
         "valid", "novel", "fcd_test", "snn_test")  # fmt: skip


COLOURS, MARKERS = 10, "os^vD"
"""How many colours there are before the marker changes, and the markers."""


def tradeoff(
    rows: Sequence[Mapping[str, Any]],
    held_out: Mapping[str, float],
    path: Path,
    *,
    scores: Sequence[str] = SHOWN,
) -> None:
    """Draw one panel for each score: a line for each model and sampler, and real text dashed.

    A line looks the same in every panel, and no two lines look alike until there are fifty.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    present = [score for score in scores if any(score in row for row in rows)]
    if not present:
        raise ValueError("none of the results has a score to draw")
    figure, axes = pyplot.subplots(
        1,
        len(present),
        figsize=(4.2 * len(present) + 1.8, 3.4),
        squeeze=False,
        layout="constrained",
    )
    lines = dict.fromkeys((row["model"], row["sampler"]) for row in rows)
    drawn: dict[str, Any] = {}
    for axis, score in zip(axes[0], present, strict=True):
        for number, line in enumerate(lines):
            points = sorted(
                (row["nfe"], row[score], row.get(f"{score}_stderr") or 0.0)
                for row in rows
                if (row["model"], row["sampler"]) == line and score in row
            )
            if not points:
                continue  # too short to say
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
        axis.set_xlabel("denoiser calls per sequence")
        axis.set_ylabel(MEASURES.get(score, score))
        axis.grid(alpha=0.3)
    figure.legend(drawn.values(), drawn, loc="outside right upper", fontsize=6)
    figure.savefig(path)
    pyplot.close(figure)
