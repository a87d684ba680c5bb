"""Variance-preserving diffusion with a clock: the continuous contrast of appendix B.

The same unit-norm table, DiT and categorical x̂ as DSL. What differs is what DSL does away with:
the state is scaled to unit variance and passed through one linear layer, and every block is
modulated by the log-SNR.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dsl.channel import observe
from dsl.denoiser import posterior_mean
from dsl.families.family import Family
from dsl.likelihoods.effort import Effort
from dsl.likelihoods.estimate import Estimator
from dsl.likelihoods.vdm_bound import VdmBound
from dsl.models.codebook import UnitCodebook, initial_table
from dsl.models.config import NetworkShape, codebook_for, require_codebook
from dsl.models.dit import DiT
from dsl.models.network import ShapedNetwork
from dsl.streams import Streams, uniform
from dsl.teacher_forcing import LADDER, AtClock, Level
from dsl.training.objective import Loss, Objective, counted, tallied
from dsl.types import Codebook, Logits, Noisy, Tokens

SNR_MIN = 1e-3
"""Where the bound begins: the state there says 0.0005 nats about a token of 26 coordinates."""


@dataclass(frozen=True)
class VpShape(NetworkShape):
    """The shape of a VP network."""

    cond_dim: int = 128
    codebook_dim: int = 64
    codebook: Literal["random", "simplex"] = "random"
    """How the codebook is initialised."""
    train_codebook: bool = True
    snr_max: float = 100.0
    """γ_max, where tokens are read off."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_codebook(self.vocab_size, self.codebook_dim, self.codebook)
        if self.llama is not None:
            raise ValueError("llama's blocks read no clock, which a VP network needs")
        if self.cond_dim < 1 or self.snr_max <= SNR_MIN:
            raise ValueError(
                f"cond_dim must be at least 1 and snr_max above {SNR_MIN}, "
                f"got {self.cond_dim} and {self.snr_max}"
            )


@dataclass(frozen=True)
class VpOptions:
    """How the bound is spent."""

    reconstruction: float = 0.125
    """The share of sequences that are observed at γ_max and reconstructed."""
    power: float = 2.0
    """The others are at γ_min + (γ_max - γ_min) u^power, u stratified over the batch."""

    def __post_init__(self) -> None:
        if not 0 < self.reconstruction < 1 or self.power < 1:
            raise ValueError(
                "reconstruction must lie in (0, 1) and power be at least 1, "
                f"got {self.reconstruction} and {self.power}"
            )


class VpModel(ShapedNetwork):
    """A network that must be told the SNR of its input; only its own sampler and bound can."""

    def __init__(self, config: VpShape) -> None:
        super().__init__(config)
        self.config = config
        v, d = config.vocab_size, config.codebook_dim
        self.sphere = UnitCodebook(
            initial_table(config.codebook, v, d), trainable=config.train_codebook
        )
        self.project = nn.Linear(d, config.hidden_dim)
        self.backbone = DiT(v, cond_dim=config.cond_dim, **config.blocks)

    @property
    def codebook(self) -> Codebook:
        """The unit-norm embeddings x_v of the tokens."""
        codebook: Tensor = self.sphere()
        return codebook

    @property
    def snr_range(self) -> tuple[float, float]:
        """The SNRs the network was trained at."""
        return SNR_MIN, self.config.snr_max

    def at_snr(self, z: Noisy, snr: Float[Tensor, "b"]) -> Logits:
        """Return clean-token logits of states z = γx + √γ ε, all positions of one at one γ."""
        gamma = snr.view(-1, 1, 1)
        unit = z / (gamma + gamma.square() / z.shape[-1]).sqrt()
        clock = snr.log()
        return self.backbone.head(self.backbone.features(self.project(unit), clock), clock)


class VpObjective(Objective):
    """VDM's bound: the squared error of x̂ over all SNRs, and the reconstruction at the last."""

    model: VpModel

    def __init__(self, model: VpModel, config: VpOptions) -> None:
        super().__init__()
        self.model, self.config = model, config

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Spend each sequence on one SNR, the SNRs stratified over the global batch.

        The prior term is left out: at a fixed γ_min on the unit sphere it is a constant.
        """
        b, length = tokens.shape
        device = tokens.device
        share, power = self.config.reconstruction, self.config.power
        low, high = self.model.snr_range
        stratum = torch.tensor(list(places), device=device).unsqueeze(1)
        u = (uniform((b, 1), generator=streams, device=device) + stratum) / batch
        last = u < share
        inner = ((u - share) / (1 - share)).clamp(min=0)
        snr = torch.where(last, high, low + (high - low) * inner**power)
        codebook = self.model.codebook
        x = codebook[tokens]
        z = observe(x, snr.expand(b, length).to(x.dtype), generator=streams)
        logits = self.model.at_snr(z, snr.squeeze(1)).float()
        losses = nn.functional.cross_entropy(
            logits.flatten(0, 1), tokens.flatten(), reduction="none"
        ).reshape(b, length)
        error = (x - posterior_mean(logits, codebook)).square().sum(dim=-1)
        weight = 0.5 * (high - low) * power * inner ** (power - 1) / (1 - share)
        bound = torch.where(last, losses / share, weight * error)
        at = last.expand_as(losses)
        parts = tallied(bound) | {
            "reconstruction": ((losses.detach() * at).sum(), at.sum()),
            "error": ((error.detach() * ~at).sum(), (~at).sum()),
        }
        return Loss(bound.sum(), counted(tokens), parts)


class VpFamily(Family):
    """Variance-preserving diffusion."""

    name = "vp"
    summary = "continuous diffusion with a clock: its own sampler and bound"
    Shape = VpShape
    Options = VpOptions
    answers = frozenset({"clock"})
    validated = ("vdm-bound",)

    def build(self, shape: VpShape) -> nn.Module:
        """Make an untrained network."""
        return VpModel(shape)

    def shape(self, vocab_size: int, length: int, chosen: Mapping[str, Any]) -> NetworkShape:
        """Complete a shape; the codebook has d = v - 1 where that is affordable.

        Of a recipe with llama's blocks, which read no clock, the other sizes are taken.
        """
        own = {name: value for name, value in chosen.items() if name != "llama"}
        return super().shape(vocab_size, length, {**codebook_for(vocab_size, own), **own})

    def objective(self, network: VpModel, options: VpOptions) -> Objective:
        """Train by VDM's bound."""
        return VpObjective(network, options)

    def estimators(self, network: VpModel, effort: Effort) -> Sequence[Estimator]:
        """Score by VDM's bound."""
        r, m = effort.replicates, effort.draws
        return [VdmBound(r, m - 1, batch_size=effort.batch_size)]

    def levels(self, network: VpModel, snrs: Sequence[float] = ()) -> Sequence[Level]:
        """Ask at SNRs within the range of the clock."""
        low, high = network.snr_range
        inside = [snr for snr in snrs or LADDER if low <= snr <= high]
        if snrs and len(inside) < len(snrs):
            raise ValueError(f"this clock shows SNRs in {low:g} … {high:g}, got {list(snrs)}")
        return [AtClock(snr) for snr in inside]
