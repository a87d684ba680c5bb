"""Quality against denoiser calls, with error bars (the figure of E.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dsl.evaluation.protocol import MEASURES
from dsl.extras import require

SHOWN = ("mauve", "genppl", "judged_bits", "sentence_entropy", "known_words",
         "valid", "novel", "fcd_test", "snn_test")  # fmt: skip


def tradeoff(
    rows: Sequence[Mapping[str, Any]],
    held_out: Mapping[str, float],
    path: Path,
    *,
    scores: Sequence[str] = SHOWN,
) -> None:
    """Draw one panel for each score: a line for each model and sampler, and real text dashed."""
    require("matplotlib", extra="figures")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    present = [score for score in scores if any(score in row for row in rows)]
    if not present:
        raise ValueError("none of the results has a score to draw")
    figure, axes = pyplot.subplots(
        1, len(present), figsize=(4.2 * len(present), 3.4), squeeze=False
    )
    for axis, score in zip(axes[0], present, strict=True):
        for line in dict.fromkeys((row["model"], row["sampler"]) for row in rows):
            points = sorted(
                (row["nfe"], row[score], row.get(f"{score}_stderr") or 0.0)
                for row in rows
                if (row["model"], row["sampler"]) == line and score in row
            )
            if not points:
                continue  # too short to say
            x, y, error = zip(*points, strict=True)
            axis.errorbar(
                x, y, yerr=error, marker="o", markersize=3, capsize=2, label=" ".join(line)
            )
        if held_out.get(score) is not None:
            axis.axhline(held_out[score], color="0.4", linestyle="--", label="real text")
        axis.set_xscale("log", base=2)
        axis.set_xlabel("denoiser calls per sequence")
        axis.set_ylabel(MEASURES.get(score, score))
        axis.grid(alpha=0.3)
    axes[0][0].legend(fontsize=6)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
