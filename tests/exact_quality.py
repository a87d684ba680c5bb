"""The exact quality of tokens, from an oracle."""

from __future__ import annotations

import torch
from torch import Tensor

from dsl.core.denoiser import Endpoints
from dsl.core.oracle import Oracle
from dsl.core.types import MASK
from tests.doubles import Double


class RatedOracle(Double):
    """P(x_i = y_i | y without i), by masking one position at a time; NaN at masks."""

    def __init__(self, truth: Oracle) -> None:
        self.truth, self.codebook = truth, truth.codebook
        self.shown: list[Tensor] = []

    def __call__(self, z: Endpoints, /, *, at: Tensor | None = None) -> Tensor:
        return self.truth(z, at=at)

    def quality(self, z: Endpoints) -> Tensor:
        self.shown.append(z.tokens)
        tokens, which = z.tokens.unique(dim=0, return_inverse=True)  # distinct texts, once each
        b, length = tokens.shape
        alone = torch.eye(length, dtype=torch.bool)
        without = tokens.unsqueeze(1).masked_fill(alone, MASK).flatten(0, 1)
        p = self.truth(Endpoints(without), at=alone.repeat(b, 1)).softmax(-1)
        own = tokens.clamp(min=0).flatten().unsqueeze(1)
        found = p.gather(1, own).reshape(b, length).masked_fill(tokens == MASK, torch.nan)
        return found[which]
