"""A model family: unigram models, which learn how frequent each token is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from dsl.core import (
    MASK,
    Denoiser,
    Endpoints,
    Mask,
    Noisy,
    Rows,
    Streams,
    Tokens,
    require_tokens,
    wanted,
)
from dsl.families import Family, Level, Loss, Masked, Objective, counted, tallied
from dsl.likelihoods import Effort, Estimator, Roar
from dsl.models import NetworkShape, ShapedNetwork


@dataclass(frozen=True)
class UnigramOptions:
    """What a recipe may set: `objective: {kind: unigram, smoothing: 0.1}`."""

    smoothing: float = 0.0
    """Label smoothing of the cross-entropy."""

    def __post_init__(self) -> None:
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing must lie in [0, 1), got {self.smoothing}")


class Unigram(ShapedNetwork):
    """A network with the same logits at every position, whatever the other tokens are."""

    def __init__(self, config: NetworkShape) -> None:
        super().__init__(config)
        self.config = config
        self.logits = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, z: Noisy | Endpoints, /, *, at: Mask | None = None) -> Rows:
        """Return the logits of all positions, or of those that `at` selects."""
        z, at = wanted(z, at)
        if not isinstance(z, Endpoints) or z.e is not None:
            raise ValueError("a unigram network reads masks and tokens only: use a masked sampler")
        require_tokens(z.tokens, self.vocab_size, least=MASK)
        rows = self.logits.expand(*z.tokens.shape, -1)
        return rows if at is None else rows[at]


class UnigramObjective(Objective):
    """The cross-entropy of every token."""

    model: Unigram

    def __init__(self, model: Unigram, options: UnigramOptions) -> None:
        super().__init__()
        self.model, self.options = model, options

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Return the sum of the losses, their count, and the values to log."""
        logits = self.model(Endpoints(torch.full_like(tokens, MASK))).float()
        losses = nn.functional.cross_entropy(
            logits.transpose(1, 2), tokens, reduction="none", label_smoothing=self.options.smoothing
        )
        return Loss(losses.sum(), counted(tokens), tallied(losses))


class UnigramFamily(Family):
    """Unigram models."""

    name = "unigram"
    summary = "token frequencies: every token by itself"
    Shape = NetworkShape
    Options = UnigramOptions
    Network = Unigram
    protocol = Denoiser
    validated = ("roar",)

    def objective(self, network: Unigram, options: UnigramOptions) -> Objective:
        """Train by cross-entropy."""
        return UnigramObjective(network, options)

    def estimators(self, network: Unigram, effort: Effort) -> Sequence[Estimator]:
        """Estimate likelihoods by ROAR."""
        return [Roar(effort.replicates, effort.draws, effort.batch_size)]

    def levels(self, network: Unigram) -> Sequence[Level]:
        """Calibrate at masked positions."""
        return [Masked()]
