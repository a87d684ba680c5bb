"""SNRs of the mixed law that are spread evenly over a batch and over each sequence.

Every SNR has the law it would have had alone, so the expectation of the loss is the same; that
they fill the law evenly makes its variance less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.snr import TINY, Mixed
from dsl.streams import Streams, permutation, uniform
from dsl.types import SNR, Mask

Spread = Literal["independent", "stratified", "antithetic"]
Turn = Callable[[Float[Tensor, "b l"]], tuple[Float[Tensor, "b l"], Float[Tensor, "b l"]]]
"""Uniform numbers to quantiles of the continuous law, and their importance weights."""


@dataclass(frozen=True, eq=False)
class Drawn:
    """SNRs, and where they come from."""

    snr: SNR
    continuous: Mask
    """Which positions belong to the continuous branch."""
    quantile: Float[Tensor, "b l"]
    """Where in the continuous law they lie."""
    weight: Float[Tensor, "b l"]
    """How much a position counts, so that the objective is that of the law."""


def spread(n: int, how: Spread, generator: torch.Generator) -> Float[Tensor, "n"]:
    """Draw n numbers, each uniform on [0, 1), that together are spread evenly.

    Stratified: one in each n-th of the interval. Antithetic: pairs u and 1 - u. Both in random
    order, so that no place is favoured.
    """
    where = generator.device
    u = torch.rand(n, generator=generator, dtype=torch.float64, device=where)
    if how == "independent":
        return u
    order = torch.randperm(n, generator=generator, device=where)
    if how == "stratified":
        return ((order + u) / n).clamp(max=1 - TINY)
    half = u[: (n + 1) // 2]
    return torch.cat([half, (1 - half).clamp(max=1 - TINY)])[:n][order]


def draw(
    law: Mixed,
    how: Spread,
    shape: tuple[int, int],
    streams: Streams,
    places: range,
    batch: int,
    *,
    device: torch.device,
    turn: Turn | None = None,
) -> Drawn:
    """Draw γ for every position of the items at these places of the global batch.

    What a sequence draws once (its branch, how many tokens it reveals, a shared γ) is spread over
    the batch; what every position draws is spread over the sequence.
    """
    b, length = shape
    once = _over_batch(how, shape, streams, places, batch, device)
    share = 1 - law.weight
    if law.per == "sequence":  # a uniform number that is below p is, over p, uniform again
        at_end = (once < share).expand(b, length)
        revealing, rest = once / max(share, TINY), (once - share) / max(law.weight, TINY)
    else:
        at_end = _over_sequence(how, shape, streams, device) < share
        revealing, rest = once, _over_batch(how, shape, streams, places, batch, device)
    count = (revealing * length).floor().clamp(max=length - 1)
    revealed = permutation(shape, generator=streams, device=device) < count
    each = _over_sequence(how, shape, streams, device)
    flat = rest.clamp(0, 1 - TINY).expand(b, length) if law.continuous.shared else each
    quantile, weight = (flat, torch.ones_like(flat)) if turn is None else turn(flat)
    snr = torch.where(at_end, law.endpoint.near(revealed, each), law.continuous.quantile(quantile))
    return Drawn(
        snr.to(torch.get_default_dtype()),
        ~at_end,
        quantile,
        torch.where(at_end, torch.ones_like(weight), weight),
    )


def _over_batch(
    how: Spread,
    shape: tuple[int, int],
    streams: Streams,
    places: range,
    batch: int,
    device: torch.device,
) -> Float[Tensor, "b 1"]:
    """Draw one number for each item, which all pieces of the batch agree on."""
    if how == "independent":
        return uniform((shape[0], 1), generator=streams, dtype=torch.float64, device=device)
    if streams.shared is None:
        raise ValueError(f"{how} SNRs need streams that share a generator, got none")
    drawn = spread(batch, how, streams.shared)[list(places)]
    return drawn.unsqueeze(1).to(device)


def _over_sequence(
    how: Spread, shape: tuple[int, int], streams: Streams, device: torch.device
) -> Float[Tensor, "b l"]:
    """Draw one number for each position, from the item's own stream."""
    return torch.stack([spread(shape[1], how, own) for own in streams.generators]).to(device)
