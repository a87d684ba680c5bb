"""The table of a comparison: seeds averaged, real text beside every model and path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from dsl.evaluation.cell import Cell
from dsl.evaluation.protocol import MEASURES


def summarise(results: Mapping[Cell, dict[str, Any]]) -> list[dict[str, Any]]:
    """Average over seeds; the error is the standard error over seeds, or that of the only one."""
    rows = []
    for key in dict.fromkeys((c.model, c.family, c.sampler) for c in results):
        found = [r for c, r in results.items() if (c.model, c.family, c.sampler) == key]
        row: dict[str, Any] = {"model": key[0], "sampler": key[1], "path": key[2]}
        row["nfe"] = fmean(r["nfe"]["mean"] for r in found)
        row["tokens_per_second"] = fmean(r["tokens_per_second"] or 0.0 for r in found)
        for name in found[0]["scores"]:
            values = [r["scores"][name]["mean"] for r in found]
            if None in values:
                continue  # too short to say
            row[name] = fmean(values)
            if len(values) > 1:
                row[f"{name}_stderr"] = stdev(values) / len(values) ** 0.5
            elif "stderr" in found[0]["scores"][name]:
                row[f"{name}_stderr"] = found[0]["scores"][name]["stderr"]
        rows.append(row)
    return rows


def markdown(rows: Sequence[dict[str, Any]], held_out: Mapping[str, float]) -> str:
    """Write the table: real text first, then every model and path."""
    names = [name for name in MEASURES if any(name in row for row in rows)]
    lines = ["| model | path | denoiser calls | " + " | ".join(MEASURES[n] for n in names) + " |"]
    lines.append("|---|---|---|" + "---|" * len(names))
    real = ["" if held_out.get(n) is None else f"{held_out[n]:.4g}" for n in names]
    lines.append("| held-out real text | | | " + " | ".join(real) + " |")
    for row in rows:
        cells = []
        for name in names:
            error = row.get(f"{name}_stderr")
            value = "" if name not in row else f"{row[name]:.4g}"
            cells.append(value + ("" if error is None else f" ± {error:.2g}"))
        lines.append(f"| {row['model']} | {row['path']} | {row['nfe']:.1f} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
