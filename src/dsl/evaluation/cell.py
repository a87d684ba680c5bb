"""A cell of a comparison: one model, one path, one seed, one file of samples."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cell:
    """One file of samples."""

    model: str
    family: str
    """The sampler with T left open: one line of the figure."""
    sampler: str
    seed: int

    def file(self, out: Path, suffix: str) -> Path:
        """Return where this cell's samples or result are."""
        name = re.sub(r"[^\w.+=-]", "_", f"{self.model}--{self.sampler}--{self.seed}")
        return out / "cells" / f"{name}{suffix}"

    @property
    def row(self) -> str:
        """What the table calls all seeds of this cell."""
        return f"{self.model}/{self.sampler}"
