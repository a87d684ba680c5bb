"""The endpoint view: masked tokens given random sets of revealed ones (equation 7, A.6)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dsl.core.denoiser import Denoiser, Endpoints, require_logits
from dsl.core.streams import Randomness, uniform
from dsl.core.types import MASK, Mask, Tokens
from dsl.likelihoods.estimate import Estimate, Kind, Replicated


@dataclass(frozen=True)
class Roar(Replicated):
    """-log P = E_k E_A [l/(l-k) Σ_{i ∉ A} -log P(s_i | s_A)], k stratified in each replicate.

    A draw is a set A. With fewer than l draws, k runs through equal strata of {0, …, l-1}. With
    more, every k is used equally often, and surplus draws are dropped.
    """

    label: ClassVar[str] = "roar"
    kind: ClassVar[Kind] = "bound"

    def __call__(
        self, denoiser: Denoiser, tokens: Tokens, *, generator: Randomness = None
    ) -> Estimate:
        """Estimate -log P of every sequence."""
        b, length = tokens.shape
        r, m = self.replicates, self.draws
        m = m if m < length else m - m % length
        u = uniform((b, r, m, 1), generator=generator, dtype=torch.float64, device=tokens.device)
        stratum = torch.arange(m, device=tokens.device).view(1, 1, m, 1)
        k = ((stratum + u) / m * length).long()
        keys = uniform(
            (b, r, m, length), generator=generator, dtype=torch.float64, device=tokens.device
        )
        revealed = keys.argsort(dim=-1).argsort(dim=-1) < k
        many = tokens.view(b, 1, 1, length).expand(b, r, m, length)
        losses = masked_losses(
            denoiser, many.reshape(-1, length), revealed.reshape(-1, length), self.batch_size
        )
        weighted = losses.reshape(b, r, m, length) * (length / (length - k))
        return Estimate(weighted.mean(dim=2))


@dataclass(frozen=True)
class Enumerated:
    """The ROAR expectation by enumeration of all 2^l - 1 sets, for short sequences."""

    batch_size: int = 256
    longest: int = 14
    label: ClassVar[str] = "roar-enumerated"
    kind: ClassVar[Kind] = "bound"

    def __call__(
        self, denoiser: Denoiser, tokens: Tokens, *, generator: Randomness = None
    ) -> Estimate:
        """Compute -log P of every sequence; nothing is random."""
        b, length = tokens.shape
        if length > self.longest:
            raise ValueError(
                f"enumeration takes 2^{length} denoiser calls a sequence; "
                f"at most {self.longest} tokens are allowed"
            )
        sets = torch.arange(2**length - 1, device=tokens.device).unsqueeze(1)
        revealed = (sets >> torch.arange(length, device=tokens.device)) & 1 == 1
        size = revealed.sum(dim=1)
        # |A|! (l - |A| - 1)! / l! is one over l times the number of sets of that size
        shares = [1 / (length * math.comb(length - 1, int(k))) for k in size]
        weight = torch.tensor(shares, dtype=torch.float64)
        values = []
        for row in tokens:
            losses = masked_losses(denoiser, row.expand(len(sets), -1), revealed, self.batch_size)
            values.append((weight.to(losses).unsqueeze(1) * losses).sum(dim=0))
        return Estimate(torch.stack(values).reshape(b, 1, length))


@torch.no_grad()
def masked_losses(
    denoiser: Denoiser, tokens: Tokens, revealed: Mask, batch_size: int
) -> Float[Tensor, "b l"]:
    """Return -log P(s_i | s_A) at the masked positions and 0 at the revealed ones."""
    parts = []
    for rows, shown in zip(tokens.split(batch_size), revealed.split(batch_size), strict=True):
        hidden: Bool[Tensor, "n l"] = ~shown
        logits = denoiser(Endpoints(rows.masked_fill(hidden, MASK)), at=hidden)
        losses = torch.zeros(rows.shape, dtype=torch.float64, device=rows.device)
        parts.append(losses.masked_scatter(hidden, cross_entropy(logits, rows[hidden])))
    return torch.cat(parts)


def cross_entropy(logits: Float[Tensor, "n v"], tokens: Tensor) -> Float[Tensor, "n"]:
    """Return -log p of the given tokens, in float64."""
    require_logits(logits)
    return -logits.double().log_softmax(dim=-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
