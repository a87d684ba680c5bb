"""The mixed-SNR cross-entropy, all of it in one forward (section 3.1, algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from dsl.core.channel import observe
from dsl.core.denoiser import posterior_mean
from dsl.core.snr import TINY, Mixed
from dsl.core.streams import Streams, permutation, uniform
from dsl.core.types import SNR, Codebook, Mask, Tokens
from dsl.families.objective import Loss, Objective, Parts, tallied
from dsl.families.warp import Warp, WarpOptions
from dsl.models.dsl import DSLModel
from dsl.models.llama import look_ahead, require_annealed

Spread = Literal["independent", "stratified", "antithetic"]
Turn = Callable[[Float[Tensor, "b l"]], tuple[Float[Tensor, "b l"], Float[Tensor, "b l"]]]
"""Uniform numbers to quantiles of the continuous law, and their importance weights."""


@dataclass(frozen=True, eq=False)
class Drawn:
    """Drawn SNRs, with their branches, quantiles and weights."""

    snr: SNR
    continuous: Mask
    """Which positions belong to the continuous branch."""
    quantile: Float[Tensor, "b l"]
    """Their quantiles in the continuous law."""
    weight: Float[Tensor, "b l"]
    """Importance weights, so that the objective is that of the given law."""


def spread(n: int, how: Spread, generator: torch.Generator) -> Float[Tensor, "n"]:
    """Draw n numbers, each uniform on [0, 1), that together are spread evenly.

    Stratified: one in each n-th of the interval. Antithetic: pairs u and 1 - u. Both in random
    order, so that no place is favoured.
    """
    where = generator.device
    u = torch.rand(n, generator=generator, dtype=torch.float64, device=where)
    if how == "independent":
        return u
    order = torch.randperm(n, generator=generator, device=where)
    if how == "stratified":
        return ((order + u) / n).clamp(max=1 - TINY)
    half = u[: (n + 1) // 2]
    return torch.cat([half, (1 - half).clamp(max=1 - TINY)])[:n][order]


def draw(
    law: Mixed,
    how: Spread,
    shape: tuple[int, int],
    streams: Streams,
    places: range,
    batch: int,
    *,
    device: torch.device,
    turn: Turn | None = None,
) -> Drawn:
    """Draw γ for every position of the items at these places of the global batch.

    Draws per sequence (its branch, the number of revealed tokens, a shared γ) are spread over the
    batch; draws per position are spread over the sequence.
    """
    b, length = shape

    def over_batch() -> Float[Tensor, "b 1"]:
        """Draw one number for each item; all pieces of the batch draw the same ones."""
        if how == "independent":
            return uniform((b, 1), generator=streams, dtype=torch.float64, device=device)
        if streams.shared is None:
            raise ValueError(f"{how} SNRs need streams that share a generator, got none")
        return spread(batch, how, streams.shared)[list(places)].unsqueeze(1).to(device)

    def over_sequence() -> Float[Tensor, "b l"]:
        """Draw one number for each position, from the item's own stream."""
        return torch.stack([spread(length, how, own) for own in streams.generators]).to(device)

    once = over_batch()
    share = 1 - law.weight
    if law.per == "sequence":  # a uniform number that is below p is, over p, uniform again
        at_end = (once < share).expand(b, length)
        revealing, rest = once / max(share, TINY), (once - share) / max(law.weight, TINY)
    else:
        at_end = over_sequence() < share
        revealing, rest = once, over_batch()
    count = (revealing * length).floor().clamp(max=length - 1)
    revealed = permutation(shape, generator=streams, device=device) < count
    each = over_sequence()
    flat = rest.clamp(0, 1 - TINY).expand(b, length) if law.continuous.shared else each
    quantile, weight = (flat, torch.ones_like(flat)) if turn is None else turn(flat)
    snr = torch.where(at_end, law.endpoint.near(revealed, each), law.continuous.quantile(quantile))
    return Drawn(
        snr.to(torch.get_default_dtype()),
        ~at_end,
        quantile,
        torch.where(at_end, torch.ones_like(weight), weight),
    )


CHUNK_ELEMENTS = 2**24
"""Logits computed at a time if there are many: 64 MB in float32."""

KEPT_ELEMENTS = 2**27
"""Logits that autograd may keep for backward: half a gigabyte. More are recomputed."""

BANDS = (0.0, 0.5, 2.0, 8.0, 32.0, float("inf"))
"""Edges of the SNR bands whose losses are logged."""


@dataclass(frozen=True)
class MixedSNROptions:
    """Options of the mixed-SNR objective."""

    snr: Mixed = Mixed()
    loss: Literal["cross-entropy", "embedding-mse"] = "cross-entropy"
    """The paper's, or the ablation of A.7."""
    masked_only: bool = False
    """Count only positions below SNR 1, and so leave visible tokens untrained."""
    codebook_penalty: float = 0.0
    """Weight of the mean squared cosine between tokens, which keeps a codebook from collapsing."""
    draws: Spread = "independent"
    """How SNRs are drawn together: independently, one in each stratum, or in pairs u and 1 - u.
    Draws per sequence are spread over the batch, draws per position over the sequence."""
    warp: WarpOptions | None = None
    """Draw continuous SNRs where the loss falls fastest; {} for the defaults."""
    anneal: float = 0.0
    """The share of a run over which llama attention becomes bidirectional; 0 is at once."""


class MixedSNRObjective(Objective):
    """Embed, corrupt, convert, predict and compare: everything that has a gradient."""

    model: DSLModel

    def __init__(self, model: DSLModel, config: MixedSNROptions) -> None:
        super().__init__()
        self.model, self.config = model, config
        self.warp = None if config.warp is None else Warp(config.warp)
        require_annealed(model.backbone, config.anneal)

    def begin(self, progress: float) -> None:
        """Widen the attention window of llama blocks."""
        length = self.model.config.model_length
        look_ahead(self.model.backbone, progress, self.config.anneal, length)

    def learn(self, sums: Float[Tensor, "n"]) -> None:
        """Update the law of SNRs from the losses of the step."""
        if self.warp is not None:
            self.warp.learn(sums)

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Return the loss of items at these places of the global batch, each with its stream."""
        b, length = tokens.shape
        drawn = self._drawn(tokens, streams, places, batch)
        if drawn is None:
            law, device = self.config.snr, tokens.device
            snr = law.sample((b, length), generator=streams, device=device)
        else:
            snr = drawn.snr
        codebook = self.model.codebook
        z = observe(codebook[tokens], snr.to(codebook.dtype), generator=streams)
        features = self.model.backbone.features(self.model.mixtures(z)).flatten(0, 1)
        losses = self._losses(features, z.flatten(0, 1), tokens.flatten(), codebook)
        losses = losses.reshape(b, length)
        kept = snr < 1.0 if self.config.masked_only else torch.ones_like(snr, dtype=torch.bool)
        counted = losses * kept if drawn is None else losses * kept * drawn.weight.to(losses.dtype)
        total, count = counted.sum(), kept.sum().to(losses.dtype)
        if self.config.codebook_penalty > 0:
            # once per counted position, so that the mean loss has it with its weight
            total = total + count * self.config.codebook_penalty * crowding(codebook)
        learned = (
            None
            if self.warp is None or drawn is None
            else self.warp.tally(drawn.quantile, losses, drawn.continuous)
        )
        return Loss(total, count, self._parts(losses, snr), learned)

    def _drawn(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Drawn | None:
        """Draw SNRs jointly; None if each is drawn independently from the given law."""
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
