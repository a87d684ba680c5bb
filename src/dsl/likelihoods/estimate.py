"""An estimate of -log P with its error: replicates first, so that the error is honest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.denoiser import Denoiser
from dsl.streams import Randomness
from dsl.types import Tokens


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
        """What each token contributes to -log P."""
        return self.values.mean(dim=1)

    @classmethod
    def join(cls, parts: Sequence[Estimate]) -> Estimate:
        """Put batches together."""
        return cls(torch.cat([part.values for part in parts]))


@dataclass(frozen=True)
class Mean:
    """The mean over a corpus, with its standard error."""

    mean: float
    stderr: float

    @classmethod
    def of(cls, values: Float[Tensor, "b"], own: Float[Tensor, "b"]) -> Mean:
        """Average sequences; their spread holds both the text's variance and the estimator's.

        A single sequence has no spread, and its own Monte-Carlo error is all there is.
        """
        n = len(values)
        if n == 1:
            return cls(float(values[0]), float(own[0]))
        return cls(float(values.mean()), float(values.std()) / math.sqrt(n))


@runtime_checkable
class Likelihood(Protocol):
    """An estimator of -log P."""

    def __call__(
        self, denoiser: Denoiser, tokens: Tokens, *, generator: Randomness = None
    ) -> Estimate:
        """Estimate -log P of every sequence, in nats."""
        ...


def require_logits(logits: Tensor) -> None:
    """Refuse a denoiser that answers NaN: every number after it would be NaN as well."""
    if logits.isnan().any():
        raise ValueError("the denoiser returned NaN logits")


def require_draws(replicates: int, draws: int) -> None:
    """Refuse a budget that leaves no estimate, or no error bar."""
    if replicates < 2 or draws < 1:
        raise ValueError(
            "an estimate with an error needs at least 2 replicates of at least 1 draw, "
            f"got {replicates} of {draws}"
        )
