"""Validation during training: bits per token on fixed blocks with fixed noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from dsl.core.denoiser import at_once
from dsl.core.types import Tokens
from dsl.evaluation.repair import Probes, repaired
from dsl.evaluation.scoring import streams_of
from dsl.families.base import Family
from dsl.likelihoods.estimate import Effort, Mean

REPAIR = "repair."
"""Prefix of the names of repair shares; the other numbers are bits per token."""
Validate = Callable[[Any], dict[str, float]]
"""Measures a network; its 'loss' decides which checkpoint is the best."""


def validator(
    family: Family,
    tokens: Tokens,
    *,
    padding: Bool[Tensor, "b l"] | None = None,
    probes: Probes | None = None,
    budget: int = 16,
    cutoff: float = 20.0,
) -> Validate:
    """Return a function that measures networks by the family's validation estimators.

    The first estimator is the `loss`. The nats of padding count, its tokens do not. With probes,
    the shares of repaired damage are added.
    """
    length = tokens.shape[1]
    own = torch.ones(len(tokens)) if padding is None else (~padding).sum(dim=1) / length

    def validate(network: Any) -> dict[str, float]:
        training = network.training
        network.eval()
        device = network.device
        effort = Effort(budget, cutoff, batch_size=at_once(network, length))
        known = {e.label: e for e in family.estimators(network, effort)}
        bits: dict[str, float] = {}
        for name in family.validated:
            streams = streams_of(known[name], 0, range(len(tokens)), device)
            nats = known[name](network, tokens.to(device), generator=streams).nats
            none = torch.zeros_like(nats)
            found = Mean.ratio(nats / length / math.log(2), own.to(nats), none)
            bits |= {name: found.mean, f"{name}_stderr": found.stderr}
        shares: dict[str, float] = {}
        if probes is not None:
            for name, share in repaired(network, family.protocol_of(network), probes).items():
                shares |= {REPAIR + name: share.mean, f"{REPAIR}{name}_stderr": share.stderr}
        network.train(training)
        return {"loss": next(iter(bits.values())), **bits, **shares}

    return validate
