"""What the rows of a comparison differ in besides what they are compared for.

A ranking of samplers is fair if they draw at the same temperature with as many denoiser calls from
equally trained models. Where they do not, the table must say so; and where nobody chose the
difference because it is a default, it is most likely a mistake.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from dsl.evaluation.cell import Cell
from dsl.loading import Model

DRAWN_BY = {"temperature": "temperature", "top_p": "top-p", "top_k": "top-k"}
"""Fields of a draw, and what people call them."""
CALLS, TRAINING = "denoiser calls", "training tokens"
ALIKE = 0.05
"""Numbers of calls that differ by less than this share count as equal."""


@dataclass(frozen=True)
class Difference:
    """A setting that is not the same in all rows."""

    setting: str
    values: Mapping[str, Any]
    """The setting of every row."""
    by_default: tuple[str, ...] = ()
    """Rows whose value nobody chose: the default of their sampler."""

    @property
    def text(self) -> str:
        """Say it in a sentence."""
        groups: dict[Any, list[str]] = {}
        for row, value in self.values.items():
            groups.setdefault(value, []).append(row)
        listed = "; ".join(f"{value}: {', '.join(rows)}" for value, rows in groups.items())
        warning = ""
        if self.by_default:
            warning = f" (by default, not by choice, in {', '.join(self.by_default)})"
        return f"{self.setting} differs between rows{warning}: {listed}"

    def to_dict(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        return {
            "setting": self.setting,
            "values": {row: str(value) for row, value in self.values.items()},
            "by_default": list(self.by_default),
        }


def differences(
    results: Mapping[Cell, Mapping[str, Any]], models: Mapping[str, Model]
) -> list[Difference]:
    """List the settings in which rows differ.

    Args:
        results: The measured cells.
        models: The models by name, for what they were trained on.
    """
    rows: dict[str, list[Cell]] = {}
    for cell in results:
        rows.setdefault(cell.row, []).append(cell)
    found = [_drawn(field, rows, results) for field in DRAWN_BY]
    calls = {
        row: round(fmean(results[cell]["nfe"]["mean"] for cell in cells), 1)
        for row, cells in rows.items()
    }
    if max(calls.values()) > (1 + ALIKE) * min(calls.values()):
        found.append(Difference(CALLS, calls))
    budgets = {row: models[cells[0].model].trained_on for row, cells in rows.items()}
    shown = {r: "unknown" if n is None else f"{n:,}" for r, n in budgets.items()}
    found.append(_if_any(TRAINING, shown))
    return [difference for difference in found if difference is not None]


def _drawn(
    field: str, rows: Mapping[str, list[Cell]], results: Mapping[Cell, Mapping[str, Any]]
) -> Difference | None:
    values = {
        row: ", ".join(
            dict.fromkeys(str(v) for v in _fields(results[cells[0]]["about"]["sampler"], field))
        )
        for row, cells in rows.items()
    }
    usual = max(set(values.values()), key=list(values.values()).count)
    unchosen = [
        row
        for row, cells in rows.items()
        if values[row] != usual and f"{field}=" not in cells[0].sampler
    ]
    return _if_any(DRAWN_BY[field], values, tuple(unchosen))


def _if_any(
    setting: str, values: Mapping[str, Any], by_default: tuple[str, ...] = ()
) -> Difference | None:
    return Difference(setting, values, by_default) if len(set(values.values())) > 1 else None


def _fields(data: Any, name: str) -> Iterator[Any]:
    """Find a field of every draw in the description of a sampler."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            if key == "draw" and isinstance(value, Mapping):
                yield value.get(name)
            else:
                yield from _fields(value, name)
    elif isinstance(data, list):
        for value in data:
            yield from _fields(value, name)
