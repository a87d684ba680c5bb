"""Substitutions: the posterior at every doubtful place, and the edits it suggests."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dsl.apps.correct.result import Edit
from dsl.apps.correct.view import View, Window, windows
from dsl.conditioning import Evidence, Known, given
from dsl.core import MASK, Denoiser, Endpoints, Mask, Randomness, at_once, stream, uniform
from dsl.likelihoods import require_logits

Mode = Literal["marginal", "surest", "sample"]
ROUNDS = 8
"""Network calls per window in the sequential modes."""


@dataclass(frozen=True, eq=False)
class Decided:
    """Decisions at the requested places, in order."""

    tokens: Int[Tensor, "n"]
    p: Float[Tensor, "n v"]
    """The posterior of each place just before its decision."""


def decide(
    denoiser: Denoiser,
    evidence: Evidence,
    asked: Mask,
    *,
    mode: Mode = "marginal",
    rounds: int = ROUNDS,
    generator: Randomness = None,
) -> Decided:
    """Decide the requested places, given the evidence at all places.

    Args:
        denoiser: The model.
        evidence: The evidence of every sequence of the batch.
        asked: The places to decide.
        mode: `marginal` decides all places from one posterior, `surest` the most confident first,
            `sample` draws them in random order; the last two condition on earlier decisions.
        rounds: Network calls, unless the mode is marginal.
        generator: The source of randomness.
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
    assert p is not None  # at least one place was requested
    return Decided(tokens[asked], p[asked])


def _choose(p: Float[Tensor, "n v"], mode: Mode, generator: Randomness) -> Int[Tensor, "n"]:
    if mode != "sample":
        return p.argmax(dim=-1)
    u = uniform((len(p), 1), generator=generator, dtype=torch.float64, device=p.device)
    return (p.cumsum(dim=-1) < u).sum(dim=-1).clamp(max=p.shape[-1] - 1)


def _order(
    p: Float[Tensor, "n v"], left: Mask, mode: Mode, generator: Randomness
) -> Float[Tensor, "b l"]:
    """Rank the places; the highest rank is decided first."""
    rank = p.new_full(left.shape, -math.inf)
    if mode == "sample":
        rank[left] = uniform((len(p),), generator=generator, dtype=p.dtype, device=p.device)
    else:
        rank[left] = p.amax(dim=-1)
    return rank


def _first(rank: Float[Tensor, "b l"], left: Mask, rounds: int) -> Mask:
    """Choose the top-ranked places of each sequence: an equal share for each remaining round."""
    share = (left.sum(dim=1, keepdim=True) / rounds).ceil()
    place = rank.argsort(dim=1, descending=True).argsort(dim=1)
    return left & (place < share)


ALTERNATIVES = 4
"""Maximum number of alternatives in an edit."""
NAMED = 1e-3
"""Minimum probability of an alternative."""


@dataclass(frozen=True, eq=False)
class Asked:
    """A doubtful place of a view, with its posterior."""

    place: int
    token: int
    """The chosen token."""
    changed: bool
    doubt: float
    """The probability that the character was misread."""
    p: Float[Tensor, "v"]


def ask(view: View, *, mode: Mode, rounds: int, margin: int, seed: int) -> Iterator[Asked]:
    """Yield the posterior of every doubtful place, window by window.

    Args:
        view: The text.
        mode: How places are decided.
        rounds: Network calls per window.
        margin: Minimum context around each place.
        seed: Random seed.
    """
    doubtful = [i for i, hint in enumerate(view.hints) if not isinstance(hint, Known)]
    length = view.model.length
    whole = list(windows(doubtful, len(view.shown), length, margin))
    size = at_once(view.model.denoiser, length)
    for begin in range(0, len(whole), size):
        yield from _batch(view, whole[begin : begin + size], mode, rounds, stream(seed, begin))


@torch.no_grad()
def _batch(
    view: View, part: Sequence[Window], mode: Mode, rounds: int, generator: torch.Generator
) -> Iterator[Asked]:
    rows = [view.hints[window.begin : window.end] for window in part]
    evidence = Evidence.of(rows, view.model.denoiser)
    asked = torch.zeros_like(evidence.pinned, dtype=torch.bool)
    for row, window in enumerate(part):
        asked[row, [place - window.begin for place in window.asked]] = True
    decided = decide(
        view.model.denoiser, evidence, asked, mode=mode, rounds=rounds, generator=generator
    )
    places = [place for window in part for place in window.asked]
    for place, token, p in zip(places, decided.tokens.tolist(), decided.p.cpu(), strict=True):
        read, gap = view.shown[place].token, view.symbol(place).is_gap
        yield Asked(place, token, gap or token != read, 1.0 if gap else 1 - float(p[read]), p)


def edit(view: View, one: Asked) -> Edit:
    """Convert a decision to an edit of the text."""
    old = view.symbol(one.place).text
    best = one.p.topk(min(ALTERNATIVES + 1, len(one.p)))
    named = [
        (view.spelling.written(other, old), share)
        for share, other in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        if other != one.token and share >= NAMED
    ]
    new = view.spelling.written(one.token, old)
    place, p = view.shown[one.place].symbol, float(one.p[one.token])
    return Edit(place, 1, old, new, p, tuple(named[:ALTERNATIVES]))
