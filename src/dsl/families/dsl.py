"""DSL: continuous states without a time input, trained on a mixture of SNRs.

Exact oracles are sampled, scored and calibrated in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dsl.core.denoiser import Continuous
from dsl.families.base import Family
from dsl.families.levels import LADDER, AtSNR, Level, Masked
from dsl.families.mixed_snr import MixedSNRObjective, MixedSNROptions
from dsl.families.objective import Objective
from dsl.likelihoods.estimate import Effort, Estimator
from dsl.likelihoods.path_integral import CONTOURS, PathIntegral
from dsl.likelihoods.roar import Roar
from dsl.models.config import ModelConfig, NetworkShape, codebook_for
from dsl.models.dsl import DSLModel


class DslFamily(Family):
    """Discrete stochastic localization."""

    name = "dsl"
    summary = "continuous token states, no time input: every masked and every continuous path"
    Shape = ModelConfig
    Options = MixedSNROptions
    Network = DSLModel
    protocol = Continuous
    validated = ("roar", "shared")

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
        """Use masked states and a ladder of SNRs."""
        return [Masked(), *self.levels_at(network, LADDER)]

    def levels_at(self, network: Any, snrs: Sequence[float]) -> Sequence[Level]:
        """Use the given SNRs; any SNR works."""
        return [AtSNR(snr) for snr in snrs]


DSL = DslFamily()
"""Exact oracles are of this family too."""
