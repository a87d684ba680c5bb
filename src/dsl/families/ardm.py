"""ARDM: order-agnostic autoregression, with the losses that its parallel sampler plans by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dsl.denoiser import Endpoints
from dsl.families.family import Family
from dsl.families.mdlm import MdlmModel, MdlmShape
from dsl.likelihoods.effort import Effort
from dsl.likelihoods.estimate import Estimator
from dsl.likelihoods.roar import Roar
from dsl.streams import Streams, permutation
from dsl.teacher_forcing import Level, Masked
from dsl.training.objective import Loss, Objective, counted, stratified, surprise, tallied
from dsl.training.warp import falling
from dsl.types import MASK, Mask, Tokens


@dataclass(frozen=True)
class ArdmOptions:
    """What ARDM's objective leaves open."""

    decay: float = 0.999
    """How much of the losses by number of known tokens is kept at every step."""

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1:
            raise ValueError(f"decay must lie in [0, 1), got {self.decay}")


class ArdmModel(MdlmModel):
    """MDLM's network, tensor for tensor, and what training found a token to cost it."""

    known_losses: Tensor
    known_counts: Tensor

    def __init__(self, config: MdlmShape) -> None:
        super().__init__(config)
        self.register_buffer("known_losses", torch.zeros(config.model_length))
        self.register_buffer("known_counts", torch.zeros(config.model_length))

    @property
    def loss_by_known(self) -> Float[Tensor, "n"]:
        """The mean loss of a masked token when k tokens are known; an even fall if never trained.

        Knowing more never costs more, so noise that says otherwise is averaged away: dynamic
        programming would find and exploit it.
        """
        counts = self.known_counts
        if not bool((counts > 0).all()):
            return 1 - torch.arange(len(counts), device=counts.device) / len(counts)
        return falling(self.known_losses / counts, counts)


class ArdmObjective(Objective):
    """l/(l-k) Σ_{i ∉ A} -log p(x_i | x_A) with k ~ U{0, …, l-1} known tokens A: ROAR's bound."""

    model: ArdmModel

    def __init__(self, model: ArdmModel, config: ArdmOptions) -> None:
        super().__init__()
        self.model, self.config = model, config

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Show each sequence its own number of tokens, stratified over the global batch."""
        b, length = tokens.shape
        u = stratified(streams, places, batch, tokens.device, torch.float64)
        k = (u * length).long().clamp(max=length - 1)
        hidden = permutation((b, length), generator=streams, device=tokens.device) >= k
        losses = hidden_losses(self.model, tokens, hidden, hidden)
        weighted = losses * (length / (length - k))
        parts = tallied(weighted) | {"masked": (losses.detach().sum(), hidden.sum())}
        return Loss(weighted.sum(), counted(tokens), parts, self._by_known(losses, k))

    def _by_known(self, losses: Float[Tensor, "b l"], k: Tensor) -> Float[Tensor, "n"]:
        """Add up the mean losses of masked tokens by how many are known, and count them."""
        length, n = losses.shape[1], self.model.config.model_length
        at = (k * n // length).squeeze(1)
        mean = (losses.detach().sum(dim=1, keepdim=True) / (length - k)).squeeze(1).double()
        sums = mean.new_zeros(n).index_add(0, at, mean)
        return torch.cat([sums, torch.bincount(at, minlength=n).to(sums)])

    def learn(self, sums: Float[Tensor, "n"]) -> None:
        """Take the losses of the step into the network's."""
        kept = (self.model.known_losses, self.model.known_counts)
        for own, new in zip(kept, sums.chunk(2), strict=True):
            own.mul_(self.config.decay).add_(new.to(own))


class ArdmFamily(Family):
    """Order-agnostic autoregression."""

    name = "ardm"
    summary = "order-agnostic autoregression: every masked path, and steps planned by its losses"
    Shape = MdlmShape
    Options = ArdmOptions
    answers = frozenset({"prefix", "endpoints"})
    validated = ("roar",)

    def build(self, shape: MdlmShape) -> nn.Module:
        """Make an untrained network."""
        return ArdmModel(shape)

    def objective(self, network: ArdmModel, options: ArdmOptions) -> Objective:
        """Train by the bound over all orders."""
        return ArdmObjective(network, options)

    def estimators(self, network: ArdmModel, effort: Effort) -> Sequence[Estimator]:
        """Score by ROAR, which is the objective."""
        return [Roar(effort.replicates, effort.draws, effort.batch_size)]

    def levels(self, network: ArdmModel) -> Sequence[Level]:
        """Ask at masks only."""
        return [Masked()]


def hidden_losses(model: MdlmModel, tokens: Tokens, hidden: Mask, at: Mask) -> Float[Tensor, "b l"]:
    """Return -log p(x_i | the tokens not hidden) at the chosen positions and 0 at the others."""
    return surprise(model(Endpoints(tokens.masked_fill(hidden, MASK)), at=at), tokens, at)
