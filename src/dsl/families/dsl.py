"""DSL itself: continuous states without a clock, trained on a mixture of SNRs.

The exact oracles are asked, scored and calibrated in just this way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from dsl.families.family import Family
from dsl.likelihoods.effort import Effort
from dsl.likelihoods.estimate import Estimator
from dsl.likelihoods.path_integral import CONTOURS, PathIntegral
from dsl.likelihoods.roar import Roar
from dsl.models.config import ModelConfig, NetworkShape, codebook_for
from dsl.models.model import DSLModel
from dsl.teacher_forcing import LADDER, AtSNR, Level, Masked
from dsl.training.mixed_snr import MixedSNRObjective, MixedSNROptions
from dsl.training.objective import Objective


class DslFamily(Family):
    """Discrete stochastic localization."""

    name = "dsl"
    summary = "continuous token states, no clock: every masked and every continuous path"
    Shape = ModelConfig
    Options = MixedSNROptions
    answers = frozenset({"prefix", "endpoints", "states"})
    validated = ("roar", "shared")

    def build(self, shape: ModelConfig) -> nn.Module:
        """Make an untrained network."""
        return DSLModel(shape)

    def shape(self, vocab_size: int, length: int, chosen: Mapping[str, Any]) -> NetworkShape:
        """Complete a shape; the codebook has d = v - 1 where that is affordable."""
        blocks = {"backbone": "llama"} if chosen.get("llama") is not None else {}
        known = {**codebook_for(vocab_size, chosen), **blocks}
        return super().shape(vocab_size, length, {**known, **chosen})

    def objective(self, network: DSLModel, options: MixedSNROptions) -> Objective:
        """Train by the mixed-SNR cross-entropy."""
        return MixedSNRObjective(network, options)

    def estimators(self, network: Any, effort: Effort) -> Sequence[Estimator]:
        """Score by ROAR, and by the path integral along every contour."""
        r, m, size = effort.replicates, effort.draws, effort.batch_size
        contours = [*CONTOURS, *([] if effort.table is None else [effort.table])]
        return [
            Roar(r, m, size),
            *(PathIntegral(c, effort.cutoff, r, m - 1, batch_size=size) for c in contours),
        ]

    def levels(self, network: Any) -> Sequence[Level]:
        """Ask at masks and at a ladder of SNRs."""
        return [Masked(), *self.levels_at(network, LADDER)]

    def levels_at(self, network: Any, snrs: Sequence[float]) -> Sequence[Level]:
        """Ask at any SNR."""
        return [AtSNR(snr) for snr in snrs]
