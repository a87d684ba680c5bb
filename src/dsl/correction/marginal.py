"""How probable it is to read what was read: the evidence of a block, given what is around it.

For any text x of the block, P(read) = P(x) P(read | x) / P(x | read). Both distributions of x are
chains of posteriors, so the ratio is a sum along one walk through the block. With an exact denoiser
it does not depend on x, nor on the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.denoiser import Continuous, Endpoints, at_once
from dsl.evidence import Evidence, given, log_likelihood
from dsl.hints import Hint, Unknown
from dsl.likelihoods.estimate import require_logits
from dsl.types import MASK, Mask, Tokens


@dataclass(frozen=True, eq=False)
class Marginal:
    """What a walk through the blocks found."""

    log_evidence: Float[Tensor, "b"]
    """ln P(what was read in the block | what was read around it)."""
    tokens: Tokens
    """The text of the walk, the likeliest at every step; MASK outside the blocks."""
    log_p: Float[Tensor, "b l"]
    """ln of the probability of each of its characters when it was chosen; 0 outside."""


@torch.no_grad()
def marginal(
    denoiser: Continuous, rows: Sequence[Sequence[Hint]], blocks: Sequence[range], *, steps: int
) -> Marginal:
    """Walk through a block of each sequence.

    Args:
        denoiser: Whose distribution it is.
        rows: What was read at every place, all sequences of one length.
        blocks: The places of each sequence whose evidence is asked for.
        steps: In how many steps a block is walked through. With as many as it has places the
            chain rule holds exactly; with fewer, places of one step count as independent.
    """
    size = max(1, at_once(denoiser, len(rows[0])) // 2)
    parts = [
        _walk(denoiser, rows[begin : begin + size], blocks[begin : begin + size], steps)
        for begin in range(0, len(rows), size)
    ]
    return Marginal(
        torch.cat([part.log_evidence for part in parts]),
        torch.cat([part.tokens for part in parts]),
        torch.cat([part.log_p for part in parts]),
    )


def _walk(
    denoiser: Continuous, rows: Sequence[Sequence[Hint]], blocks: Sequence[range], steps: int
) -> Marginal:
    read = Evidence.of(rows, denoiser)
    around = Evidence.of(
        [
            [Unknown() if i in block else hint for i, hint in enumerate(row)]
            for row, block in zip(rows, blocks, strict=True)
        ],
        denoiser,
    )
    within = torch.zeros_like(read.pinned, dtype=torch.bool)
    said = torch.zeros(*within.shape, denoiser.vocab_size, dtype=torch.float64)
    codebook = denoiser.codebook.detach().double()
    for row, block in enumerate(blocks):
        within[row, list(block)] = True
        for i in block:
            said[row, i] = log_likelihood([rows[row][i]], codebook)
    alike = _alike(rows, blocks)
    known = torch.full_like(read.pinned, MASK)
    log_p = torch.zeros(known.shape, dtype=torch.float64)
    total = torch.zeros(len(known), dtype=torch.float64)
    for step in range(steps):
        here = within & (_turn(blocks, known.shape[1]) % steps == step)
        if not here.any():
            continue
        posterior = _log_posterior(denoiser, read, known, here)
        same = alike if step == 0 else range(len(rows))
        prior = _log_prior(denoiser, around, known, here, same)
        chosen = posterior.argmax(dim=-1, keepdim=True)
        gain = prior.gather(1, chosen) + said[here].gather(1, chosen) - posterior.gather(1, chosen)
        total = total.index_add(0, here.nonzero()[:, 0], gain.squeeze(1))
        log_p[here] = posterior.gather(1, chosen).squeeze(1)
        known[here] = chosen.squeeze(1)
    return Marginal(total, known, log_p)


def _alike(rows: Sequence[Sequence[Hint]], blocks: Sequence[range]) -> list[int]:
    """Say of every sequence which is the first one that differs from it in its block only."""
    keys = [
        (block, tuple(id(hint) for i, hint in enumerate(row) if i not in block))
        for row, block in zip(rows, blocks, strict=True)
    ]
    first: dict[object, int] = {}
    return [first.setdefault(key, place) for place, key in enumerate(keys)]


def _log_prior(
    denoiser: Continuous, around: Evidence, known: Tokens, here: Mask, alike: Sequence[int]
) -> Float[Tensor, "n v"]:
    """Ask about sequences that are alike only once."""
    different = sorted(set(alike))
    asked = here[different]
    rows = _log_posterior(denoiser, around.take(different), known[different], asked)
    size = [int(count) for count in asked.sum(dim=1)]
    parts = dict(zip(different, rows.split(size), strict=True))
    return torch.cat([parts[place] for place in alike])


def _turn(blocks: Sequence[range], length: int) -> Tensor:
    """Number the places of every block from its beginning."""
    begins = torch.tensor([block.start for block in blocks]).unsqueeze(1)
    return torch.arange(length).unsqueeze(0) - begins


def _log_posterior(
    denoiser: Continuous, evidence: Evidence, known: Tokens, here: Mask
) -> Float[Tensor, "n v"]:
    pinned = torch.where(known != MASK, known, evidence.pinned)
    unknown = Endpoints(torch.full_like(pinned, MASK))
    rows = given(denoiser, replace(evidence, pinned=pinned))(unknown, at=here)
    require_logits(rows)
    return rows.double().log_softmax(dim=-1).cpu()
