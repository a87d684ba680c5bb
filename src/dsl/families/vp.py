"""Variance-preserving diffusion with an SNR input: the continuous baseline of appendix B.

The same unit-norm table, DiT and categorical x̂ as DSL. The differences are what DSL removes:
the state is scaled to unit variance and passed through one linear layer, and every block is
modulated by the log-SNR.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from dsl.core.channel import observe
from dsl.core.denoiser import Clocked, posterior_mean
from dsl.core.streams import Streams
from dsl.core.types import Codebook, Logits, Noisy, Tokens
from dsl.families.base import Family
from dsl.families.levels import LADDER, AtClock, Level
from dsl.families.objective import Loss, Objective, Parts, counted, stratified, tallied
from dsl.likelihoods.estimate import Effort, Estimator
from dsl.likelihoods.vdm import PowerLaw, VdmBound
from dsl.models.codebook import UnitCodebook, initial_table
from dsl.models.config import NetworkShape, ShapedNetwork, codebook_for, require_codebook
from dsl.models.dit import DiT

SNR_MIN = 1e-3
"""The lowest SNR of the bound: there a state with d = 26 carries 0.0005 nats per token."""


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
            raise ValueError("a VP network cannot have llama blocks: they have no SNR input")
        if self.cond_dim < 1 or self.snr_max <= SNR_MIN:
            raise ValueError(
                f"cond_dim must be at least 1 and snr_max above {SNR_MIN}, "
                f"got {self.cond_dim} and {self.snr_max}"
            )


@dataclass(frozen=True)
class VpOptions:
    """Options of the VDM objective."""

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
    """A network with an SNR input; it needs its own samplers and bound."""

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
        return self.answer(self.enter(z, snr), z, snr)

    def enter(self, z: Noisy, snr: Float[Tensor, "b"]) -> Float[Tensor, "b l h"]:
        """Scale states to unit variance and project them to the hidden width."""
        gamma = snr.view(-1, 1, 1)
        projected: Tensor = self.project(z / (gamma + gamma.square() / z.shape[-1]).sqrt())
        return projected

    def answer(self, entered: Float[Tensor, "b l h"], z: Noisy, snr: Float[Tensor, "b"]) -> Logits:
        """Run the blocks and the head, both modulated by the log-SNR."""
        clock = snr.log()
        return self.backbone.head(self.backbone.features(entered, clock), clock)


@dataclass(frozen=True, eq=False)
class Spent:
    """The SNRs assigned to a batch, and VDM's bound of each token."""

    u: Float[Tensor, "b 1"]
    """The quantile of each sequence in the law of SNRs; 0 if it is reconstructed."""
    last: Bool[Tensor, "b 1"]
    """Which sequences are at γ_max and reconstructed."""
    bound: Float[Tensor, "b l"]
    parts: Parts


class VdmObjective(Objective):
    """VDM's bound: the squared error of x̂ over all SNRs, and the reconstruction at the last."""

    model: VpModel

    def __init__(self, model: VpModel, reconstruction: float) -> None:
        super().__init__()
        self.model, self.reconstruction = model, reconstruction

    @abstractmethod
    def place(
        self, u: Float[Tensor, "b 1"], last: Bool[Tensor, "b 1"]
    ) -> tuple[Float[Tensor, "b 1"], Float[Tensor, "b 1"]]:
        """Return the SNR of every sequence, γ(u) or γ_max, and dγ/du."""

    def ask(self, z: Noisy, snr: Float[Tensor, "b"], streams: Streams) -> Logits:
        """Return the logits of the network."""
        return self.model.at_snr(z, snr)

    def spend(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Spent:
        """Assign one SNR to each sequence, stratified over the global batch."""
        b, length = tokens.shape
        share = self.reconstruction
        u = stratified(streams, places, batch, tokens.device)
        last = u < share
        inner = ((u - share) / (1 - share)).clamp(min=0)
        snr, slope = self.place(inner, last)
        codebook = self.model.codebook
        x = codebook[tokens]
        z = observe(x, snr.expand(b, length).to(x.dtype), generator=streams)
        logits = self.ask(z, snr.squeeze(1), streams).float()
        losses = nn.functional.cross_entropy(
            logits.flatten(0, 1), tokens.flatten(), reduction="none"
        ).reshape(b, length)
        error = (x - posterior_mean(logits, codebook)).square().sum(dim=-1)
        bound = torch.where(last, losses / share, 0.5 * slope / (1 - share) * error)
        at = last.expand_as(losses)
        parts = tallied(bound) | {
            "reconstruction": ((losses.detach() * at).sum(), at.sum()),
            "error": ((error.detach() * ~at).sum(), (~at).sum()),
        }
        return Spent(inner, last, bound, parts)


class VpObjective(VdmObjective):
    """VDM's bound with SNRs drawn by a power law."""

    def __init__(self, model: VpModel, config: VpOptions) -> None:
        super().__init__(model, config.reconstruction)
        self.config = config

    def place(
        self, u: Float[Tensor, "b 1"], last: Bool[Tensor, "b 1"]
    ) -> tuple[Float[Tensor, "b 1"], Float[Tensor, "b 1"]]:
        """Return γ_min + (γ_max - γ_min) u^power, and its derivative."""
        law = PowerLaw(*self.model.snr_range, self.config.power)
        snr, slope = law(u)
        return torch.where(last, law.high, snr), slope

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Return the bound without its prior term: at a fixed γ_min that is a constant."""
        spent = self.spend(tokens, streams, places, batch)
        return Loss(spent.bound.sum(), counted(tokens), spent.parts)


class ClockFamily(Family):
    """The base class of families with an SNR input."""

    protocol = Clocked
    validated = ("vdm-bound",)
    llama = False

    def shape(self, vocab_size: int, length: int, chosen: Mapping[str, Any]) -> NetworkShape:
        """Complete a shape; the codebook has d = v - 1 where that is affordable."""
        return super().shape(vocab_size, length, {**codebook_for(vocab_size, chosen), **chosen})

    def estimators(self, network: Any, effort: Effort) -> Sequence[Estimator]:
        """Score by VDM's bound."""
        r, m = effort.replicates, effort.draws
        return [VdmBound(r, m - 1, batch_size=effort.batch_size)]

    def levels(self, network: VpModel) -> Sequence[Level]:
        """Use the SNRs of the ladder within the network's range."""
        low, high = network.snr_range
        return [AtClock(snr) for snr in LADDER if low <= snr <= high]

    def levels_at(self, network: VpModel, snrs: Sequence[float]) -> Sequence[Level]:
        """Use the given SNRs, which must lie in the network's range."""
        low, high = network.snr_range
        if not all(low <= snr <= high for snr in snrs):
            raise ValueError(f"the network's SNRs lie in {low:g} … {high:g}, got {list(snrs)}")
        return [AtClock(snr) for snr in snrs]


class VpFamily(ClockFamily):
    """Variance-preserving diffusion."""

    name = "vp"
    summary = "continuous diffusion with an SNR input: its own samplers and bound"
    Shape = VpShape
    Options = VpOptions
    Network = VpModel

    def objective(self, network: VpModel, options: VpOptions) -> Objective:
        """Train by VDM's bound."""
        return VpObjective(network, options)
