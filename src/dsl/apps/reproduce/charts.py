"""One way to draw charts: a row of panels in a matplotlib figure, saved to a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def panels(path: Path, n: int, width: float, height: float) -> Iterator[tuple[Any, list[Any]]]:
    """Make a figure with n panels side by side, and save it on exit; the suffix sets the format."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = list(figure.subplots(1, n, squeeze=False)[0])
    for axis in axes:
        axis.grid(alpha=0.3)
    yield figure, axes
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
