"""Validation curves of several runs: bits per token against training tokens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dsl._util.config import read_yaml
from dsl._util.files import parse_json
from dsl.apps.reproduce.charts import panels
from dsl.evaluation import REPAIR

NAMES = {
    "chain-rule": "chain rule, exact",
    "vdm-bound": "VDM bound",
    "roar": "ROAR",
    "shared": "path integral",
}


def read(run: Path) -> dict[str, list[tuple[float, float, float]]]:
    """Return (tokens, bits, error) of every estimator that validated a run."""
    log, recipe = run / "log.jsonl", run / "recipe.yaml"
    if not (log.is_file() and recipe.is_file()):
        raise FileNotFoundError(f"{run} is not a run: it needs log.jsonl and recipe.yaml")
    settings = read_yaml(recipe)
    curves: dict[str, dict[int, tuple[float, float, float]]] = {}
    for number, line in enumerate(log.read_bytes().splitlines(), 1):
        event = parse_json(line, f"{log}, line {number},")
        try:
            tokens = float(settings["trainer"]["batch"] * settings["data"]["length"])
            for name, bits in event.get("validation", {}).items():
                if f"{name}_stderr" in event["validation"] and not name.startswith(REPAIR):
                    step = int(event["step"])  # a resumed run may validate a step twice
                    error = float(event["validation"][f"{name}_stderr"])
                    curves.setdefault(name, {})[step] = (step * tokens, float(bits), error)
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as fault:
            raise ValueError(f"{log}, line {number}, was not written by `dsl train`") from fault
    if not curves:
        raise ValueError(f"{run} has not been validated yet")
    return {name: [points[step] for step in sorted(points)] for name, points in curves.items()}


def curves(runs: Mapping[str, Path], path: Path) -> None:
    """Draw a line for every run and estimator."""
    found = {label: read(run) for label, run in runs.items()}
    with panels(path, 1, 6.0, 4.0) as (_, (axis,)):
        for label, estimators in found.items():
            for name, points in estimators.items():
                x, y, _ = zip(*points, strict=True)
                style = "--" if name == "shared" else "-"
                text = f"{label}: {NAMES.get(name, name)}"
                axis.plot(x, y, style, marker="o", markersize=3, label=text)
        axis.set(xlabel="training tokens", ylabel="validation, bits per token")
        axis.legend(fontsize=8)
