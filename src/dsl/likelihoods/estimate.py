"""Estimates of -log P, with standard errors from independent replicates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from dsl.core.path import Tabulated
from dsl.core.streams import Randomness
from dsl.core.types import Tokens

LEAST_BUDGET, MOST_BUDGET = 4, 1_000_000


@dataclass(frozen=True)
class Effort:
    """The budget of an estimate, and the cut-off of its contours."""

    budget: int = 64
    """Denoiser calls for each sequence and estimator."""
    cutoff: float = 20.0
    """Γ, where contours end."""
    table: Tabulated | None = None
    """An additional contour, if any."""
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


@dataclass(frozen=True, eq=False)
class Estimate:
    """Independent estimates of -log P in nats, split among the tokens of each sequence.

    Draws inside a replicate may be stratified and so depend on each other; replicates do not, and
    the standard errors come from them alone.
    """

    values: Float[Tensor, "b r l"]

    @property
    def nats(self) -> Float[Tensor, "b"]:
        """-log P of each sequence."""
        return self.values.sum(dim=-1).mean(dim=1)

    @property
    def stderr(self) -> Float[Tensor, "b"]:
        """The Monte-Carlo error of each sequence; zero where a single replicate is exact."""
        r = self.values.shape[1]
        if r == 1:
            return torch.zeros_like(self.nats)
        return self.values.sum(dim=-1).std(dim=1) / math.sqrt(r)

    @property
    def mean_stderr(self) -> float:
        """The Monte-Carlo error of the mean over these sequences."""
        return float(self.stderr.square().sum().sqrt()) / len(self.stderr)

    @property
    def tokens(self) -> Float[Tensor, "b l"]:
        """The contribution of each token to -log P."""
        return self.values.mean(dim=1)

    @property
    def reading(self) -> Reading:
        """The sequences' totals, with their errors."""
        return Reading(self.nats, self.stderr)


@dataclass(frozen=True, eq=False)
class Reading:
    """-log P of each sequence in nats, and its Monte-Carlo error."""

    nats: Float[Tensor, "b"]
    stderr: Float[Tensor, "b"]


Values = Shaped[Tensor, "b"] | Sequence[float | int]
"""Numbers of which a mean or a deviation is taken."""


@dataclass(frozen=True)
class Mean:
    """A mean with its standard error."""

    mean: float
    stderr: float

    @classmethod
    def of(cls, values: Values, own: Values | None = None) -> Mean:
        """Average values; their spread holds both the text's variance and the estimator's."""
        return cls.ratio(values, [1.0] * len(values), own)

    @classmethod
    def ratio(cls, amounts: Values, counts: Values, own: Values | None = None) -> Mean:
        """Return Σ amounts / Σ counts, its error by the delta method.

        A single value has no spread: the error is its own Monte-Carlo error, NaN if not given.
        """
        a, c = _numbers(amounts), _numbers(counts)
        total = float(c.sum())
        if total == 0:
            return cls(math.nan, math.nan)
        rate = float(a.sum()) / total
        if len(a) == 1:
            return cls(rate, math.nan if own is None else float(own[0]) / total)
        return cls(rate, deviation((a - rate * c) / c.mean()) / math.sqrt(len(a)))

    def to_dict(self) -> dict[str, float | None]:
        """Return both numbers for JSON, with None for NaN."""
        return {name: None if math.isnan(v) else v for name, v in vars(self).items()}


def deviation(values: Values) -> float:
    """Return the standard deviation; NaN of fewer than two values."""
    return float(_numbers(values).std()) if len(values) > 1 else math.nan


def _numbers(values: Values) -> Float[Tensor, "b"]:
    if isinstance(values, Tensor):
        return values.detach().cpu().double()
    return torch.tensor(values, dtype=torch.float64)


Kind = Literal["exact", "bound", "estimate"]
"""What a number is. exact: -log P itself, without randomness. bound: its expectation is at least
-log P of the model. estimate: its expectation is -log P if the denoiser is the exact one of some
prior, and may lie on either side of it if not."""


@runtime_checkable
class Estimator(Protocol):
    """An estimator of -log P."""

    @property
    def label(self) -> str:
        """What tables call it; with the seed, it determines the random numbers."""
        ...

    @property
    def kind(self) -> Kind:
        """What sort of number it gives."""
        ...

    def __call__(self, denoiser: Any, tokens: Tokens, *, generator: Randomness = None) -> Estimate:
        """Estimate -log P of every sequence, in nats."""
        ...


@dataclass(frozen=True)
class Replicated:
    """The budget of an estimator: independent replicates of several draws each."""

    replicates: int = 8
    draws: int = 8
    batch_size: int = 256
    """Sequences in one call of the denoiser."""

    def __post_init__(self) -> None:
        require_draws(self.replicates, self.draws)


def require_draws(replicates: int, draws: int) -> None:
    """Raise an error if the budget is too small for an estimate with an error bar."""
    if replicates < 2 or draws < 1:
        raise ValueError(
            "an estimate with an error needs at least 2 replicates of at least 1 draw, "
            f"got {replicates} of {draws}"
        )
