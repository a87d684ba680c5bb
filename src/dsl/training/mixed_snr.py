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
from dsl.models.llama import look_ahead, require_annealed
from dsl.models.model import DSLModel
from dsl.snr import Mixed
from dsl.streams import Streams
from dsl.training.objective import Loss, Objective, Parts, tallied
from dsl.training.snr_draws import Drawn, Spread, draw
from dsl.training.warp import Warp, WarpOptions
from dsl.types import Codebook, Tokens

CHUNK_ELEMENTS = 2**24
"""Logits that are made at a time when there are many: 64 MB in float32."""

KEPT_ELEMENTS = 2**27
"""Logits that autograd may keep for the way back: half a gigabyte. More are computed twice."""

BANDS = (0.0, 0.5, 2.0, 8.0, 32.0, float("inf"))
"""Edges of the SNR bands whose losses are logged."""


@dataclass(frozen=True)
class MixedSNROptions:
    """What the denoiser is trained on."""

    snr: Mixed = Mixed()
    loss: Literal["cross-entropy", "embedding-mse"] = "cross-entropy"
    """The paper's, or the ablation of A.7."""
    masked_only: bool = False
    """Count only positions below SNR 1, and so leave visible tokens untrained."""
    codebook_penalty: float = 0.0
    """Weight of the mean squared cosine between tokens, which keeps a codebook from collapsing."""
    draws: Spread = "independent"
    """How SNRs are drawn together: each for itself, one in each stratum, or in pairs u and 1 - u;
    over the batch what a sequence draws once, over the sequence what a position draws."""
    warp: WarpOptions | None = None
    """Draw continuous SNRs where the loss falls fastest; {} for the defaults."""
    anneal: float = 0.0
    """The share of a run over which llama's blocks come to see what is ahead; 0 is at once."""


class MixedSNRObjective(Objective):
    """Embed, corrupt, convert, predict and compare: everything that has a gradient."""

    model: DSLModel

    def __init__(self, model: DSLModel, config: MixedSNROptions) -> None:
        super().__init__()
        self.model, self.config = model, config
        self.warp = None if config.warp is None else Warp(config.warp)
        require_annealed(model.backbone, config.anneal)

    def begin(self, progress: float) -> None:
        """Let llama's blocks see further ahead."""
        length = self.model.config.model_length
        look_ahead(self.model.backbone, progress, self.config.anneal, length)

    def learn(self, sums: Float[Tensor, "n"]) -> None:
        """Let the law of SNRs follow the losses of the step."""
        if self.warp is not None:
            self.warp.learn(sums)

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Return the loss of items at these places of the global batch, each with its stream."""
        b, length = tokens.shape
        drawn = self._drawn(tokens, streams, places, batch)
        law, device = self.config.snr, tokens.device
        snr = (
            law.sample((b, length), generator=streams, device=device)
            if drawn is None
            else drawn.snr
        )
        codebook = self.model.codebook
        z = observe(codebook[tokens], snr.to(codebook.dtype), generator=streams)
        features = self.model.backbone.features(self.model.mixtures(z)).flatten(0, 1)
        losses = self._losses(features, z.flatten(0, 1), tokens.flatten(), codebook)
        losses = losses.reshape(b, length)
        kept = snr < 1.0 if self.config.masked_only else torch.ones_like(snr, dtype=torch.bool)
        counted = losses * kept if drawn is None else losses * kept * drawn.weight.to(losses.dtype)
        total, count = counted.sum(), kept.sum().to(losses.dtype)
        if self.config.codebook_penalty > 0:
            # as often as positions are counted, so that in the mean it has its weight
            total = total + count * self.config.codebook_penalty * crowding(codebook)
        learned = (
            None
            if self.warp is None or drawn is None
            else self.warp.tally(drawn.quantile, losses, drawn.continuous)
        )
        return Loss(total, count, self._parts(losses, snr), learned)

    def _drawn(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Drawn | None:
        """Draw SNRs together, or None if each is to be drawn for itself by the given law."""
        config = self.config
        if config.draws == "independent" and self.warp is None:
            return None
        b, length = tokens.shape
        return draw(
            config.snr, config.draws, (b, length), streams, places, batch,
            device=tokens.device, turn=self.warp,
        )  # fmt: skip

    def _losses(
        self,
        features: Float[Tensor, "n h"],
        z: Float[Tensor, "n d"],
        tokens: Int[Tensor, "n"],
        codebook: Codebook,
    ) -> Float[Tensor, "n"]:
        """Pass the head all rows, or a chunk at a time if n x v logits would be too many."""
        if len(features) * len(codebook) <= KEPT_ELEMENTS:
            return self._compare(features, z, tokens, codebook)
        chunk = max(1, CHUNK_ELEMENTS // len(codebook))
        parts = [
            checkpoint(self._compare, *rows, codebook, use_reentrant=False)
            for rows in zip(*(part.split(chunk) for part in (features, z, tokens)), strict=True)
        ]
        return torch.cat(parts)

    def _compare(
        self,
        features: Float[Tensor, "m h"],
        z: Float[Tensor, "m d"],
        tokens: Int[Tensor, "m"],
        codebook: Codebook,
    ) -> Float[Tensor, "m"]:
        logits = self.model.logits(features, z).float()
        if self.config.loss == "cross-entropy":
            return nn.functional.cross_entropy(logits, tokens, reduction="none")
        x_hat = posterior_mean(logits, codebook.float())
        return (codebook[tokens] - x_hat).square().sum(dim=-1)

    def _parts(self, losses: Float[Tensor, "b l"], snr: Float[Tensor, "b l"]) -> Parts:
        bands = {
            f"snr {low:g}-{high:g}": (snr >= low) & (snr < high) for low, high in pairwise(BANDS)
        }
        if self.config.snr.continuous.shared:  # then a whole sequence may sit at an end by chance
            return tallied(losses, **bands)
        roar = self.config.snr.endpoint
        ends = (snr <= roar.snr_min) | (snr >= roar.c * roar.snr_max)
        if self.config.snr.per == "sequence":
            # every position of a ROAR sequence is at an end; of a continuous one hardly ever
            ends = ends.all(dim=1, keepdim=True).expand_as(snr)
        return tallied(losses, **bands, roar=ends, continuous=~ends)


def crowding(codebook: Float[Tensor, "v d"]) -> Float[Tensor, ""]:
    """Return the mean squared cosine between different tokens."""
    gram = codebook @ codebook.T
    v = len(codebook)
    return (gram.square().sum() - gram.diagonal().square().sum()) / (v * (v - 1))
