"""A learned law of SNRs: γ(u) is a monotone table, trained to make a loss vary less (Plaid, VDM).

A bound that weighs its draws by dγ/du has one expectation under any law. What the law decides is
the variance, so it is trained by E[loss²] and the network by E[loss].
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dsl.training.warp import located

FLOOR = 0.05
"""The share of draws that stays log-uniform, so that no weight is above 1/FLOOR of theirs."""


class LearnedSchedule(nn.Module):
    """log γ as a piecewise linear function of u, from log γ_min to log γ_max.

    The knots are even in log γ; learned is how much of u lies between two of them, and, if wanted,
    where the ends are. Untrained it is log-uniform.
    """

    def __init__(self, low: float, high: float, bins: int, *, learn_ends: bool) -> None:
        super().__init__()
        ends = torch.tensor([math.log(low), math.log(high)])
        self.ends = nn.Parameter(ends, requires_grad=learn_ends)
        self.increments = nn.Parameter(torch.zeros(bins))

    @property
    def mass(self) -> Float[Tensor, "k"]:
        """The probability of every bin."""
        steps = nn.functional.softplus(self.increments)
        return FLOOR / len(steps) + (1 - FLOOR) * steps / steps.sum()

    @property
    def range(self) -> tuple[float, float]:
        """γ_min and γ_max."""
        low, high = self.ends.detach().double().exp().tolist()
        return low, high

    def forward(
        self, u: Float[Tensor, "*draws"]
    ) -> tuple[Float[Tensor, "*draws"], Float[Tensor, "*draws"]]:
        """Return γ and dγ/du; they have a gradient for the ends, none for the law."""
        mass = self.mass.detach().to(u.dtype)
        at, inside = located(mass, u)
        low, high = self.ends.to(u.dtype)
        snr = (low + (high - low) * (at + inside) / len(mass)).exp()
        return snr, snr * (high - low) / (len(mass) * mass[at])

    def steering(self, u: Float[Tensor, "b 1"], losses: Float[Tensor, "b 1"]) -> Float[Tensor, ""]:
        """Return a number whose gradient for the law is that of Σ E[loss²].

        With q the density of γ and loss = e(γ)/q(γ), E[loss²] = ∫ e²/q dγ. Its gradient is
        -E[loss² ∇ log q(γ)], γ held: no gradient has to pass the network.
        """
        at, _ = located(self.mass.detach().to(u.dtype), u)
        return -(losses.detach().square() * self.mass.log()[at]).sum()
