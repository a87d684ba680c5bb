"""The chain rule of an autoregressive model: exact, in one forward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.likelihoods.estimate import Estimate, Kind, require_logits
from dsl.likelihoods.roar import cross_entropy
from dsl.streams import Randomness
from dsl.types import Tokens


@runtime_checkable
class Autoregressive(Protocol):
    """A model that predicts all tokens at once, each from those before it."""

    def teacher_forced(self, tokens: Tokens) -> Float[Tensor, "b l v"]:
        """Return the logits of every token given those before it."""
        ...


@dataclass(frozen=True)
class ChainRule:
    """-log P = -Σ_i log P(s_i | s_<i)."""

    batch_size: int = 256
    label: ClassVar[str] = "chain-rule"
    kind: ClassVar[Kind] = "exact"

    @torch.no_grad()
    def __call__(self, denoiser: Any, tokens: Tokens, *, generator: Randomness = None) -> Estimate:
        """Compute -log P of every sequence; nothing is random."""
        if not isinstance(denoiser, Autoregressive):
            raise ValueError("only an autoregressive model has a chain rule of its own")
        parts = []
        for rows in tokens.split(self.batch_size):
            logits = denoiser.teacher_forced(rows)
            require_logits(logits)
            losses = cross_entropy(logits.flatten(0, 1), rows.flatten())
            parts.append(losses.reshape(len(rows), 1, -1))
        return Estimate(torch.cat(parts))
