"""Decide doubtful characters: all at once, the surest first, or by drawing them.

The probabilities of a place are those of the moment before it was decided: what was decided
elsewhere may count, its own decision never does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dsl.denoiser import Denoiser, Endpoints
from dsl.evidence import Evidence, given
from dsl.likelihoods.estimate import require_logits
from dsl.streams import Randomness, uniform
from dsl.types import MASK, Mask

Mode = Literal["marginal", "surest", "sample"]
ROUNDS = 8
"""Calls of the network in which the doubtful places of a window are decided, if not all at once."""


@dataclass(frozen=True, eq=False)
class Decided:
    """What was decided at the places that were asked about, in their order."""

    tokens: Int[Tensor, "n"]
    p: Float[Tensor, "n v"]
    """The posterior of each, just before it was decided."""


def decide(
    denoiser: Denoiser,
    evidence: Evidence,
    asked: Mask,
    *,
    mode: Mode = "marginal",
    rounds: int = ROUNDS,
    generator: Randomness = None,
) -> Decided:
    """Decide the places that are asked about, given the evidence on all of them.

    Args:
        denoiser: Whose posterior it is.
        evidence: What was read, for every sequence of the batch.
        asked: The places to decide.
        mode: All from one posterior; the surest first, the rest again with those known; or drawn
            in a random order, likewise.
        rounds: How many times the network is asked, unless the mode is marginal.
        generator: Where the random numbers come from.
    """
    rounds = 1 if mode == "marginal" else rounds
    left, pinned = asked.clone(), evidence.pinned.clone()
    tokens = torch.full_like(pinned, MASK)
    p: Tensor | None = None
    unknown = Endpoints(torch.full_like(pinned, MASK))
    for done in range(rounds):
        if not left.any():
            break
        rows = given(denoiser, replace(evidence, pinned=pinned))(unknown, at=left)
        require_logits(rows)
        now = rows.double().softmax(dim=-1)
        p = now.new_zeros(*asked.shape, now.shape[-1]) if p is None else p
        p[left] = now
        chosen = _choose(now, mode, generator)
        first = _first(_order(now, left, mode, generator), left, rounds - done)
        tokens[left] = chosen
        pinned = torch.where(first, tokens, pinned)
        left = left & ~first
    assert p is not None  # somebody asked
    return Decided(tokens[asked], p[asked])


def _choose(p: Float[Tensor, "n v"], mode: Mode, generator: Randomness) -> Int[Tensor, "n"]:
    if mode != "sample":
        return p.argmax(dim=-1)
    u = uniform((len(p), 1), generator=generator, dtype=torch.float64, device=p.device)
    return (p.cumsum(dim=-1) < u).sum(dim=-1).clamp(max=p.shape[-1] - 1)


def _order(
    p: Float[Tensor, "n v"], left: Mask, mode: Mode, generator: Randomness
) -> Float[Tensor, "b l"]:
    """Say which places come first: those with the largest number."""
    rank = p.new_full(left.shape, -math.inf)
    if mode == "sample":
        rank[left] = uniform((len(p),), generator=generator, dtype=p.dtype, device=p.device)
    else:
        rank[left] = p.amax(dim=-1)
    return rank


def _first(rank: Float[Tensor, "b l"], left: Mask, rounds: int) -> Mask:
    """Choose of every sequence its share of the rounds that remain, the first in rank."""
    share = (left.sum(dim=1, keepdim=True) / rounds).ceil()
    place = rank.argsort(dim=1, descending=True).argsort(dim=1)
    return left & (place < share)
