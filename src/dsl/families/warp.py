"""A learned SNR law: continuous SNRs are drawn where the loss falls fastest.

CDCD's time warping (Dieleman et al., 2022) as a law over the quantiles of the given law. The loss
is averaged in bins of equal probability; each bin is then drawn in proportion to how much the
loss falls across it. So the learned distribution function is piecewise linear, and as a function
of it the loss falls evenly.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from dsl.core.types import Mask


@dataclass(frozen=True)
class WarpOptions:
    """How the law is learned."""

    weighted: bool = True
    """Weigh losses by importance. If a sequence shares one SNR, the expected objective is then that
    of the given law; if each token has its own SNR, the SNRs of its neighbours still follow the
    learned law. Without weights the learned law replaces the given one, as in CDCD."""
    bins: int = 32
    decay: float = 0.99
    """The decay of the running loss per step."""
    floor: float = 0.2
    """The share of draws from the given law; weights are at most 1/floor."""

    def __post_init__(self) -> None:
        if not (2 <= self.bins <= 4096 and 0 <= self.decay < 1 and 0 < self.floor <= 1):
            raise ValueError(
                "a warp needs bins in 2 … 4096, decay in [0, 1) and floor in (0, 1], "
                f"got {self.bins}, {self.decay} and {self.floor}"
            )


class Warp(nn.Module):
    """The running loss by quantile, and the law learned from it, which starts as the given one."""

    losses: Tensor
    counts: Tensor
    mass: Tensor

    def __init__(self, config: WarpOptions) -> None:
        super().__init__()
        self.config = config
        zeros = torch.zeros(config.bins, dtype=torch.float64)
        self.register_buffer("losses", zeros.clone())
        self.register_buffer("counts", zeros.clone())
        self.register_buffer("mass", torch.full_like(zeros, 1 / config.bins))

    def forward(self, u: Float[Tensor, "b l"]) -> tuple[Float[Tensor, "b l"], Float[Tensor, "b l"]]:
        """Return the quantiles at which the learned distribution function is u, and weights."""
        bins = self.config.bins
        at, inside = located(self.mass, u)
        weight = 1 / (bins * self.mass[at])
        return (at + inside) / bins, weight if self.config.weighted else torch.ones_like(weight)

    def tally(
        self, quantile: Float[Tensor, "b l"], losses: Float[Tensor, "b l"], where: Mask
    ) -> Float[Tensor, "n"]:
        """Add up losses by bin, and count them."""
        bins = self.config.bins
        at = (quantile * bins).long().clamp(0, bins - 1)[where]
        sums = torch.zeros_like(self.losses).index_add(0, at, losses.detach().double()[where])
        counts = torch.bincount(at, minlength=bins).to(sums.dtype)
        return torch.cat([sums, counts])

    def learn(self, sums: Float[Tensor, "n"]) -> None:
        """Update the running losses and the law from a step's sums."""
        losses, counts = sums.to(self.losses.device).chunk(2)
        self.losses.mul_(self.config.decay).add_(losses)
        self.counts.mul_(self.config.decay).add_(counts)
        self.mass.copy_(self._law())

    def _law(self) -> Float[Tensor, "k"]:
        """Mix the given law with one that draws each bin by the fall of the loss across it."""
        bins, floor = self.config.bins, self.config.floor
        uniform = torch.full_like(self.mass, 1 / bins)
        if not bool((self.counts > 0).all()):
            return uniform
        mean = falling(self.losses / self.counts, self.counts)
        ends = torch.cat([mean[:1], (mean[1:] + mean[:-1]) / 2, mean[-1:]])
        drop = ends[:-1] - ends[1:]
        total = drop.sum()
        return floor * uniform + (1 - floor) * drop / total if float(total) > 0 else uniform


def located(
    mass: Float[Tensor, "k"], u: Float[Tensor, "*draws"]
) -> tuple[Int[Tensor, "*draws"], Float[Tensor, "*draws"]]:
    """Find where bins of these masses have the distribution function u: which bin, how far in."""
    upper = mass.cumsum(0)
    at = torch.searchsorted(upper, u.contiguous(), right=True).clamp(max=len(mass) - 1)
    return at, ((u - (upper - mass)[at]) / mass[at]).clamp(0, 1)


WeightedRun = tuple[float, float, int]
"""A value, its weight, and how often it is repeated."""


def falling(values: Float[Tensor, "k"], weights: Float[Tensor, "k"]) -> Float[Tensor, "k"]:
    """Return the nearest non-increasing sequence, by pooling adjacent violators."""
    from dsl._util.isotonic import pooled  # training only; sampling loads this module, too

    weighted = ((v, w, 1) for v, w in zip(values.tolist(), weights.tolist(), strict=True))

    def merged(one: WeightedRun, other: WeightedRun) -> WeightedRun:
        (a, m, i), (b, n, j) = one, other
        return (a * m + b * n) / (m + n), m + n, i + j

    blocks = pooled(weighted, merged, lambda one, other: one[0] < other[0])
    flat = [value for value, _, times in blocks for _ in range(times)]
    return torch.tensor(flat, dtype=values.dtype, device=values.device)
