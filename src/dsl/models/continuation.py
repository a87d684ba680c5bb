"""Drawing from a causal network with its memory, and what it says of what was drawn, exactly."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dsl.models.ar import ArModel
from dsl.streams import Randomness, uniform

WORTH_KEEPING = 0.8
"""The share of sequences that must go on for those that ended to be dragged along."""


@dataclass(frozen=True, eq=False)
class Drawn:
    """Sequences, and the network's own numbers about each."""

    tokens: Int[Tensor, "n l"]
    """What follows the end of a sequence is that end again."""
    sizes: Int[Tensor, "n"]
    """Tokens of each sequence, its end included if it has one."""
    nats: Float[Tensor, "n"]
    """-log P of each."""
    entropy: Float[Tensor, "n"]
    """The sum of the entropies of the next token along each: its mean is that of `nats`."""


@torch.no_grad()
def draw(network: ArModel, n: int, *, end: int, length: int, generator: Randomness = None) -> Drawn:
    """Draw sequences side by side, each until its end or until it has `length` tokens.

    Args:
        network: A causal network of llama's blocks.
        n: How many.
        end: The token that ends a sequence.
        length: The most tokens of one.
        generator: Where the random numbers come from; a stream for each sequence makes it
            independent of its neighbours.
    """
    chance = uniform((n, length), generator=generator, dtype=torch.float64, device=network.device)
    tokens = torch.full((n, length), end, device=network.device)
    sizes = torch.full((n,), length, device=network.device)
    nats, entropy = chance.new_zeros(n), chance.new_zeros(n)
    rows = torch.arange(n, device=network.device)  # those that are asked about
    logits, memory = network.extend(tokens[:, :0], None)
    for place in range(length):
        going = sizes[rows] == length
        log_p = logits.double().log_softmax(dim=-1)
        p = log_p.exp()
        chosen = inverse_cdf(p, chance[rows, place]).where(going, end)
        tokens[rows, place] = chosen
        nats[rows] -= going * log_p.gather(1, chosen.unsqueeze(1)).squeeze(1)
        entropy[rows] -= going * (p * log_p).sum(dim=1)
        sizes[rows[going & (chosen == end)]] = place + 1
        going &= chosen != end
        if not going.any() or place + 1 == length:
            break
        if going.double().mean() < WORTH_KEEPING:  # to forget the others costs a copy
            memory.keep(going)
            rows, chosen = rows[going], chosen[going]
        logits, memory = network.extend(chosen.unsqueeze(1), memory)
    return Drawn(tokens, sizes, nats, entropy)


def inverse_cdf(p: Float[Tensor, "n v"], u: Float[Tensor, "n"]) -> Int[Tensor, "n"]:
    """Choose by uniform numbers; never what has no probability, whatever the sum rounds to."""
    above = p.cumsum(dim=1)
    found = torch.searchsorted(above, (u * above[:, -1]).unsqueeze(1), right=True).squeeze(1)
    last = p.shape[1] - 1 - (p > 0).flip(1).int().argmax(dim=1)
    return torch.minimum(found, last)
