"""Plaid: VP diffusion and its noise schedule, trained by likelihood (Gulrajani & Hashimoto, 2023).

Implemented are the learned schedule and its end points, the state's own scores added to the
logits, self-conditioning of a quarter of the batch, and the loss. Blocks, SNR input and unit-norm
codebook are those of the VP family.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from dsl.apps.zoo.self_conditioning import (
    RecallFamily,
    RecallModel,
    RecallShape,
    ask_in_training,
    require_share,
)
from dsl.core import Logits, Noisy, Streams, Tokens
from dsl.families import Loss, Objective, VdmObjective, counted, located
from dsl.likelihoods import Effort, Estimator, VdmBound, prior

FLOOR = 0.05
"""The share of draws that stays log-uniform, which bounds the importance weights by 1/FLOOR."""


class LearnedSchedule(nn.Module):
    """log γ as a piecewise linear function of u, from log γ_min to log γ_max.

    The knots are evenly spaced in log γ. The mass of u between knots is learned, and optionally the
    end points. Untrained, the schedule is log-uniform.
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
        """Return γ and dγ/du, with gradients for the end points but not for the masses."""
        mass = self.mass.detach().to(u.dtype)
        at, inside = located(mass, u)
        low, high = self.ends.to(u.dtype)
        snr = (low + (high - low) * (at + inside) / len(mass)).exp()
        return snr, snr * (high - low) / (len(mass) * mass[at])

    def steering(self, u: Float[Tensor, "b 1"], losses: Float[Tensor, "b 1"]) -> Float[Tensor, ""]:
        """Return a number whose gradient for the masses is that of Σ E[loss²].

        With q the density of γ and loss = e(γ)/q(γ), E[loss²] = ∫ e²/q dγ. Its gradient is
        -E[loss² ∇ log q(γ)] at fixed γ, so none has to flow through the network.
        """
        at, _ = located(self.mass.detach().to(u.dtype), u)
        return -(losses.detach().square() * self.mass.log()[at]).sum()


SNR_FIRST, SNR_LAST = math.exp(-6.0), math.exp(3.0)
"""Plaid's initial range: its γ_1 = 6 and γ_0 = -3 are negative log-SNRs."""

LAW_SCALE = 1e-3
"""Scales the gradient of the schedule. Adam is invariant to it, but squared losses are large and
would dominate the clipped gradient norm."""


@dataclass(frozen=True)
class PlaidShape(RecallShape):
    """The shape of a Plaid network."""

    snr_min: float = SNR_FIRST
    snr_max: float = SNR_LAST
    learn_range: bool = True
    """Whether γ_min and γ_max are trained by the bound."""
    bins: int = 32
    """Knots of the learned schedule."""
    evidence_logits: bool = True
    """Whether a state's own scores ⟨z, x_v⟩ are added to the logits, as in Bayes' rule. In VP's
    coordinate they are (α/σ²) ⟨z, x_v⟩."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.bins <= 4096:
            raise ValueError(f"bins must lie in 1 … 4096, got {self.bins}")


@dataclass(frozen=True)
class PlaidOptions:
    """Options of Plaid's objective."""

    reconstruction: float = 0.125
    """The share of sequences that are observed at γ_max and reconstructed."""
    told: float = 0.25
    """The share of sequences that are self-conditioned."""

    def __post_init__(self) -> None:
        require_share(self.told)
        if not 0 < self.reconstruction < 1:
            raise ValueError(f"reconstruction must lie in (0, 1), got {self.reconstruction}")


class PlaidModel(RecallModel):
    """A VP network with its own learned schedule of SNRs."""

    config: PlaidShape

    def __init__(self, config: PlaidShape) -> None:
        super().__init__(config)
        self.schedule = LearnedSchedule(
            config.snr_min, config.snr_max, config.bins, learn_ends=config.learn_range
        )

    @property
    def snr_range(self) -> tuple[float, float]:
        """The SNRs the network was trained at."""
        return self.schedule.range

    def answer(self, entered: Float[Tensor, "b l h"], z: Noisy, snr: Float[Tensor, "b"]) -> Logits:
        """Add the scores of each state to the logits from its context."""
        context = super().answer(entered, z, snr)
        if not self.config.evidence_logits:
            return context
        with torch.autocast(z.device.type, enabled=False):
            exact = torch.promote_types(torch.float32, z.dtype)
            return context + nn.functional.linear(z.to(exact), self.codebook.to(exact))


class PlaidObjective(VdmObjective):
    """All three terms of VDM's bound, with SNRs from a schedule that learns to reduce variance."""

    model: PlaidModel

    def __init__(self, model: PlaidModel, config: PlaidOptions) -> None:
        super().__init__(model, config.reconstruction)
        self.config = config

    def place(
        self, u: Float[Tensor, "b 1"], last: Bool[Tensor, "b 1"]
    ) -> tuple[Float[Tensor, "b 1"], Float[Tensor, "b 1"]]:
        """Return γ(u) of the learned schedule, and its derivative."""
        snr, slope = self.model.schedule(u)
        return torch.where(last, self.model.schedule.ends[1].exp(), snr), slope

    def ask(self, z: Noisy, snr: Float[Tensor, "b"], streams: Streams) -> Logits:
        """Return logits; a share of the sequences is self-conditioned."""
        return ask_in_training(self.model, z, snr, self.config.told, streams)

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Return the bound, with the gradient of E[loss²] for the schedule."""
        spent = self.spend(tokens, streams, places, batch)
        schedule, count = self.model.schedule, counted(tokens)
        first = prior(schedule.ends[0].exp(), self.model.config.codebook_dim)
        losses = spent.bound.mean(dim=1, keepdim=True).masked_fill(spent.last, 0.0)
        law = LAW_SCALE * tokens.shape[1] * schedule.steering(spent.u, losses)
        total = spent.bound.sum() + count * first + (law - law.detach())
        parts = spent.parts | {"prior": (count * first.detach(), count)}
        return Loss(total, count, parts)


class PlaidFamily(RecallFamily):
    """Likelihood-based VP diffusion."""

    name = "plaid"
    summary = "VP diffusion with a learned noise schedule, trained by its likelihood"
    Shape = PlaidShape
    Options = PlaidOptions
    Network = PlaidModel

    def objective(self, network: PlaidModel, options: PlaidOptions) -> Objective:
        """Train the network by the bound, and the schedule by its variance."""
        return PlaidObjective(network, options)

    def estimators(self, network: Any, effort: Effort) -> Sequence[Estimator]:
        """Score by VDM's bound with SNRs from the learned schedule."""
        return [
            replace(bound, law=network.schedule) if isinstance(bound, VdmBound) else bound
            for bound in super().estimators(network, effort)
        ]
