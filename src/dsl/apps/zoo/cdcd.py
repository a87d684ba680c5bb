"""CDCD: VP diffusion trained by cross-entropy at every SNR (Dieleman et al., 2022).

Score interpolation: the network predicts token probabilities, and sampler and bound use
x̂ = Σ_v p_v x_v. Time warping draws SNRs where the cross-entropy falls fastest. Half of a batch is
self-conditioned.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dsl.apps.zoo.self_conditioning import (
    RecallFamily,
    RecallModel,
    RecallShape,
    ask_in_training,
    require_share,
)
from dsl.core import Streams, Tokens, observe
from dsl.families import Loss, Objective, Warp, WarpOptions, counted, stratified, tallied

DIM, T_MIN, T_MAX = 256, 2.0, 300.0
"""CDCD's noise t on embeddings of norm √256 is the SNR 256/t² of unit vectors. The paper starts at
t = 1; the implementation of Plaid's authors, which reports likelihoods, at 2."""


@dataclass(frozen=True)
class CdcdShape(RecallShape):
    """The shape of a CDCD network."""

    snr_min: float = DIM / T_MAX**2
    snr_max: float = DIM / T_MIN**2


@dataclass(frozen=True)
class CdcdOptions(WarpOptions):
    """Options of time warping: SNRs start log-uniform, then follow the slope of the loss."""

    weighted: bool = False
    """Weight losses by importance, so that the objective stays that of log-uniform SNRs."""
    bins: int = 100
    floor: float = 0.05
    """The share of draws that stays log-uniform."""
    told: float = 0.5
    """The share of sequences that are self-conditioned."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_share(self.told)


class CdcdObjective(Objective):
    """The cross-entropy of the tokens, each sequence at an SNR of its own."""

    model: RecallModel

    def __init__(self, model: RecallModel, config: CdcdOptions) -> None:
        super().__init__()
        self.model, self.config = model, config
        self.warp = Warp(config)

    def learn(self, sums: Float[Tensor, "n"]) -> None:
        """Update the distribution of SNRs with the losses of the step."""
        self.warp.learn(sums)

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Observe each sequence at one SNR, the SNRs stratified over the global batch."""
        b, length = tokens.shape
        u = stratified(streams, places, batch, tokens.device)
        quantile, weight = self.warp(u.double())
        low, high = self.model.snr_range
        snr = (low * (high / low) ** quantile).to(u.dtype)
        x = self.model.codebook[tokens]
        z = observe(x, snr.expand(b, length).to(x.dtype), generator=streams)
        logits = ask_in_training(self.model, z, snr.squeeze(1), self.config.told, streams)
        losses = nn.functional.cross_entropy(
            logits.float().flatten(0, 1), tokens.flatten(), reduction="none"
        ).reshape(b, length)
        everywhere = torch.ones_like(tokens, dtype=torch.bool)
        learned = self.warp.tally(quantile.expand(b, length), losses, everywhere)
        total = (losses * weight.to(losses.dtype)).sum()
        return Loss(total, counted(tokens), tallied(losses), learned)


class CdcdFamily(RecallFamily):
    """Continuous diffusion for categorical data."""

    name = "cdcd"
    summary = "VP diffusion trained by cross-entropy at SNRs where it falls fastest"
    Shape = CdcdShape
    Options = CdcdOptions
    Network = RecallModel

    def objective(self, network: RecallModel, options: CdcdOptions) -> Objective:
        """Train by cross-entropy under time warping."""
        return CdcdObjective(network, options)
