"""The chain rule of a denoiser from left to right: one network call for each token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dsl.denoiser import Denoiser, Endpoints
from dsl.likelihoods.estimate import Estimate, Kind, require_draws, require_logits
from dsl.likelihoods.roar import cross_entropy
from dsl.streams import Randomness, uniform
from dsl.types import MASK, Tokens


@dataclass(frozen=True)
class Causal:
    """-log P = Σ_i -log P(s_i | s_<i) of what `causal` samples, from some or all of its terms.

    The expectation is that number itself, for any denoiser; there is no bound in between. If the
    calls suffice for all l terms they are summed, and nothing is random.
    """

    replicates: int = 8
    draws: int = 8
    """Terms in a replicate, one in each of equal strata of the text."""
    batch_size: int = 256
    """Sequences in one call of the denoiser."""
    label: ClassVar[str] = "causal"
    kind: ClassVar[Kind] = "bound"

    def __post_init__(self) -> None:
        require_draws(self.replicates, self.draws)

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
            require_logits(logits)
            parts.append(cross_entropy(logits, rows.gather(1, i).squeeze(1)))
        return torch.cat(parts).reshape(b, n)
