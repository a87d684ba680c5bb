"""What an estimate may cost, and how a budget of denoiser calls is split into replicates."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from dsl.path import Tabulated

LEAST_BUDGET, MOST_BUDGET = 4, 1_000_000


@dataclass(frozen=True)
class Effort:
    """How much an estimate may cost, and how far its contours go."""

    budget: int = 64
    """Denoiser calls for each sequence and estimator."""
    cutoff: float = 20.0
    """Γ, where contours end."""
    table: Tabulated | None = None
    """One more contour."""
    batch_size: int = 256
    """Sequences in one call of the denoiser."""

    def __post_init__(self) -> None:
        if not LEAST_BUDGET <= self.budget <= MOST_BUDGET:
            raise ValueError(
                f"the budget must lie in {LEAST_BUDGET} … {MOST_BUDGET:,} denoiser calls a "
                f"sequence (two replicates of a draw and a read-out at least), got {self.budget}"
            )

    @property
    def replicates(self) -> int:
        """Independent estimates, from which the error is found."""
        return min(16, self.budget // 2)

    @property
    def draws(self) -> int:
        """Denoiser calls in a replicate."""
        return self.budget // self.replicates

    def on(self, device: torch.device) -> Effort:
        """Move the table to a device."""
        if self.table is None:
            return self
        table = Tabulated(self.table.times.to(device), self.table.snr.to(device))
        return replace(self, table=table)
