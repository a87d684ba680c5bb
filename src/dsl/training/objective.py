"""The mixed-SNR cross-entropy, all of it in one forward (section 3.1, algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from dsl.channel import observe
from dsl.denoiser import posterior_mean
from dsl.models.model import DSLModel
from dsl.snr import Mixed
from dsl.streams import Streams
from dsl.types import Codebook, Tokens

CHUNK_ELEMENTS = 2**24
"""Logits that are made at a time when there are many: 64 MB in float32."""

KEPT_ELEMENTS = 2**27
"""Logits that autograd may keep for the way back: half a gigabyte. More are computed twice."""

BANDS = (0.0, 0.5, 2.0, 8.0, 32.0, float("inf"))
"""Edges of the SNR bands whose losses are logged."""


@dataclass(frozen=True)
class ObjectiveConfig:
    """What the denoiser is trained on."""

    snr: Mixed = Mixed()
    loss: Literal["cross-entropy", "embedding-mse"] = "cross-entropy"
    """The paper's, or the ablation of A.7."""
    masked_only: bool = False
    """Count only positions below SNR 1, and so leave visible tokens untrained."""
    codebook_penalty: float = 0.0
    """Weight of the mean squared cosine between tokens, which keeps a codebook from collapsing."""


@dataclass(frozen=True, eq=False)
class Loss:
    """The loss of a batch, and what is worth knowing about it."""

    total: Float[Tensor, ""]
    parts: dict[str, tuple[Tensor, Tensor]]
    """Sums and counts by name, so that batches and ranks can be averaged correctly."""


class MixedSNRObjective(nn.Module):
    """Embed, corrupt, convert, predict and compare: everything that has a gradient.

    It is one module, because distributed wrappers and the compiler need a single forward.
    """

    def __init__(self, model: DSLModel, config: ObjectiveConfig) -> None:
        super().__init__()
        self.model, self.config = model, config

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Return the loss of items at these places of the global batch, each with its stream."""
        b, length = tokens.shape
        snr = self.config.snr.sample((b, length), generator=streams, device=tokens.device)
        codebook = self.model.codebook
        z = observe(codebook[tokens], snr.to(codebook.dtype), generator=streams)
        features = self.model.backbone.features(self.model.mixtures(z)).flatten(0, 1)
        losses = self._losses(features, tokens.flatten(), codebook).reshape(b, length)
        counted = snr < 1.0 if self.config.masked_only else torch.ones_like(snr, dtype=torch.bool)
        total = (losses * counted).sum() / counted.sum().clamp(min=1)
        if self.config.codebook_penalty > 0:
            total = total + self.config.codebook_penalty * crowding(codebook)
        return Loss(total, self._parts(losses.detach(), snr))

    def _losses(
        self, features: Float[Tensor, "n h"], tokens: Int[Tensor, "n"], codebook: Codebook
    ) -> Float[Tensor, "n"]:
        """Pass the head all rows, or a chunk at a time if n x v logits would be too many."""
        if len(features) * len(codebook) <= KEPT_ELEMENTS:
            return self._compare(features, tokens, codebook)
        chunk = max(1, CHUNK_ELEMENTS // len(codebook))
        parts = [
            checkpoint(self._compare, rows, wanted, codebook, use_reentrant=False)
            for rows, wanted in zip(features.split(chunk), tokens.split(chunk), strict=True)
        ]
        return torch.cat(parts)

    def _compare(
        self, features: Float[Tensor, "m h"], tokens: Int[Tensor, "m"], codebook: Codebook
    ) -> Float[Tensor, "m"]:
        logits = self.model.backbone.head(features).float()
        if self.config.loss == "cross-entropy":
            return nn.functional.cross_entropy(logits, tokens, reduction="none")
        x_hat = posterior_mean(logits, codebook.float())
        return (codebook[tokens] - x_hat).square().sum(dim=-1)

    def _parts(self, losses: Tensor, snr: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        parts = {"all": torch.ones_like(snr, dtype=torch.bool)}
        for low, high in pairwise(BANDS):
            parts[f"snr {low:g}-{high:g}"] = (snr >= low) & (snr < high)
        if self.config.snr.continuous.shared:  # then a whole sequence may sit at an end by chance
            return {name: ((losses * at).sum(), at.sum()) for name, at in parts.items()}
        roar = self.config.snr.endpoint
        ends = (snr <= roar.snr_min) | (snr >= roar.c * roar.snr_max)
        if self.config.snr.per == "sequence":
            # every position of a ROAR sequence is at an end; of a continuous one hardly ever
            ends = ends.all(dim=1, keepdim=True).expand_as(snr)
        parts["roar"], parts["continuous"] = ends, ~ends
        return {name: ((losses * at).sum(), at.sum()) for name, at in parts.items()}


def crowding(codebook: Float[Tensor, "v d"]) -> Float[Tensor, ""]:
    """Return the mean squared cosine between different tokens."""
    gram = codebook @ codebook.T
    v = len(codebook)
    return (gram.square().sum() - gram.diagonal().square().sum()) / (v * (v - 1))
