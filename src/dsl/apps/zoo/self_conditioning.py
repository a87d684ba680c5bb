"""Self-conditioning (Chen et al., 2022): a VP network with its previous prediction as an input.

The previous x̂ is a second input, zero if there is none. In training, a share of the sequences gets
the network's own first prediction at the same state, without gradient. Samplers pass x̂ of the
previous call; the bound calls the network twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dsl.core import Logits, Noisy, Streams, posterior_mean, uniform
from dsl.families import ClockFamily, VpModel, VpShape
from dsl.likelihoods import LEAST_BUDGET, Effort, Estimator


@dataclass(frozen=True)
class RecallShape(VpShape):
    """The shape of a VP network with optional self-conditioning."""

    snr_min: float = 1e-3
    """γ_min, where the bound begins."""
    self_conditioning: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.snr_min < self.snr_max <= 1e6:
            raise ValueError(
                f"SNRs need 0 < snr_min < snr_max <= 1e6, got {self.snr_min:g} and {self.snr_max:g}"
            )


class RecallModel(VpModel):
    """A VP network with a second input, whose weights are initialised to zero."""

    config: RecallShape

    def __init__(self, config: RecallShape) -> None:
        super().__init__(config)
        self.recall: nn.Linear | None = None
        if config.self_conditioning:
            self.recall = nn.Linear(config.codebook_dim, config.hidden_dim, bias=False)
            nn.init.zeros_(self.recall.weight)

    @property
    def self_conditioned(self) -> bool:
        """Whether the network uses self-conditioning."""
        return self.recall is not None

    @property
    def snr_range(self) -> tuple[float, float]:
        """The SNRs the network was trained at."""
        return self.config.snr_min, self.config.snr_max

    def at_snr(self, z: Noisy, snr: Float[Tensor, "b"], previous: Noisy | None = None) -> Logits:
        """Return clean-token logits, given states and optionally a previous x̂."""
        entered = self.enter(z, snr)
        if self.recall is not None and previous is not None:
            # coordinates of a unit vector are 1/√d: scaled up, they are as large as the state's
            entered = entered + self.recall(previous * z.shape[-1] ** 0.5)
        return self.answer(entered, z, snr)


def ask_in_training(
    model: RecallModel, z: Noisy, snr: Float[Tensor, "b"], share: float, streams: Streams
) -> Logits:
    """Return logits; a share of the sequences is self-conditioned.

    The first prediction is computed for all sequences, because dropout is seeded by place.
    """
    if not model.self_conditioned:
        return model.at_snr(z, snr)
    told = uniform((len(z), 1, 1), generator=streams, device=z.device) < share
    with torch.no_grad():
        first = posterior_mean(model.at_snr(z, snr).float(), model.codebook)
    return model.at_snr(z, snr, torch.where(told, first, torch.zeros_like(first)))


def require_share(told: float) -> None:
    """Raise ValueError unless the share lies in (0, 1]."""
    if not 0 < told <= 1:
        raise ValueError(
            f"told must lie in (0, 1], got {told}; to switch it off set self_conditioning: false"
        )


class RecallFamily(ClockFamily):
    """A VP family with optional self-conditioning."""

    def estimators(self, network: Any, effort: Effort) -> Sequence[Estimator]:
        """Score by VDM's bound; self-conditioned networks are called twice per draw."""
        if not network.self_conditioned:
            return super().estimators(network, effort)
        if effort.budget < 2 * LEAST_BUDGET:
            raise ValueError(
                "a self-conditioned network is called twice per draw and needs a budget of at "
                f"least {2 * LEAST_BUDGET}, got {effort.budget}"
            )
        return super().estimators(network, replace(effort, budget=effort.budget // 2))
