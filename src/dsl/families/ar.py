"""Autoregressive models: the same blocks, causal, without any modulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from dsl.core.denoiser import Prefixed
from dsl.core.streams import Streams
from dsl.core.types import Tokens
from dsl.families.base import Family
from dsl.families.levels import Level, Prefix
from dsl.families.objective import Loss, Objective, counted, tallied
from dsl.likelihoods.chain_rule import ChainRule
from dsl.likelihoods.estimate import Effort, Estimator
from dsl.models.ar import ArModel, ArShape


@dataclass(frozen=True)
class ArOptions:
    """The autoregressive objective has no choices."""


class ArObjective(Objective):
    """Next-token cross-entropy."""

    model: ArModel

    def __init__(self, model: ArModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Return the exact -log P of a batch, for each token."""
        logits = self.model.teacher_forced(tokens)
        losses = nn.functional.cross_entropy(
            logits.flatten(0, 1).float(), tokens.flatten(), reduction="none"
        )
        return Loss(losses.sum(), counted(tokens), tallied(losses.reshape(tokens.shape)))


class ArFamily(Family):
    """Autoregression from left to right."""

    name = "ar"
    summary = "autoregressive: one token after the other, exact likelihood in one forward"
    Shape = ArShape
    Options = ArOptions
    Network = ArModel
    protocol = Prefixed
    validated = ("chain-rule",)

    def objective(self, network: ArModel, options: ArOptions) -> Objective:
        """Train by the next token's cross-entropy."""
        return ArObjective(network)

    def estimators(self, network: ArModel, effort: Effort) -> Sequence[Estimator]:
        """Score by the chain rule."""
        return [ChainRule(effort.batch_size)]

    def levels(self, network: ArModel) -> Sequence[Level]:
        """Use prefixes only."""
        return [Prefix()]
