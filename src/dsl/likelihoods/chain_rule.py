"""The chain rule of a denoiser from left to right: one network call for each token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dsl.core.denoiser import Denoiser, Endpoints
from dsl.core.streams import Randomness, uniform
from dsl.core.types import MASK, Tokens
from dsl.likelihoods.estimate import Estimate, Kind, Replicated
from dsl.likelihoods.roar import cross_entropy


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
            raise ValueError(f"expected an autoregressive model, got a {type(denoiser).__name__}")
        parts = []
        for rows in tokens.split(self.batch_size):
            losses = cross_entropy(denoiser.teacher_forced(rows).flatten(0, 1), rows.flatten())
            parts.append(losses.reshape(len(rows), 1, -1))
        return Estimate(torch.cat(parts))


@dataclass(frozen=True)
class Causal(Replicated):
    """-log P = Σ_i -log P(s_i | s_<i) of the `causal` sampler, from some or all of its terms.

    A draw is a term, one in each of equal strata of the text. The expectation is -log P itself, for
    any denoiser. If the calls suffice for all l terms they are summed, and nothing is random.
    """

    label: ClassVar[str] = "causal"
    kind: ClassVar[Kind] = "bound"

    def __call__(
        self, denoiser: Denoiser, tokens: Tokens, *, generator: Randomness = None
    ) -> Estimate:
        """Estimate -log P of every sequence."""
        b, length = tokens.shape
        r, m = self.replicates, self.draws
        if r * m >= length:
            every = torch.arange(length, device=tokens.device).expand(b, length)
            return Estimate(self._terms(denoiser, tokens, every).unsqueeze(1).expand(b, r, length))
        u = uniform((b, r, m), generator=generator, dtype=torch.float64, device=tokens.device)
        at = ((torch.arange(m, device=tokens.device) + u) / m * length).long()
        terms = self._terms(denoiser, tokens, at.reshape(b, r * m)).reshape(b, r, m)
        return Estimate(terms.new_zeros(b, r, length).scatter_add(2, at, terms * (length / m)))

    @torch.no_grad()
    def _terms(
        self, denoiser: Denoiser, tokens: Tokens, at: Int[Tensor, "b n"]
    ) -> Float[Tensor, "b n"]:
        """Return -log P(s_i | s_<i) of the chosen positions i of each sequence."""
        b, n = at.shape
        position = torch.arange(tokens.shape[1], device=tokens.device)
        many = tokens.repeat_interleave(n, dim=0).split(self.batch_size)
        parts = []
        for rows, i in zip(many, at.reshape(-1, 1).split(self.batch_size), strict=True):
            shown = rows.masked_fill(position >= i, MASK)
            logits = denoiser(Endpoints(shown), at=position == i)
            parts.append(cross_entropy(logits, rows.gather(1, i).squeeze(1)))
        return torch.cat(parts).reshape(b, n)
