"""The random times at which the objectives of masked diffusion look, and what they weigh there."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.alpha import Schedule
from dsl.streams import Randomness, uniform
from dsl.training.objective import stratified
from dsl.types import Mask, Tokens

LEAST_TIME = 1e-3
"""Where the times begin: from 0 on, the weighed losses would have no finite variance."""


@dataclass(frozen=True, eq=False)
class Moments:
    """A time for each sequence, and where its schedule stands then."""

    t: Float[Tensor, "b 1"]
    gone: Float[Tensor, "b 1"]
    """1 - α(t), the share of masked tokens."""
    wait: Float[Tensor, "b 1"]
    """(1 - α) / -α', which the losses of masked tokens are divided by: ∫ -α'/(1 - α) dt of their
    sum is the bound, whatever the schedule."""


def moments(
    alpha: Schedule, streams: Randomness, places: range, batch: int, device: torch.device
) -> Moments:
    """Draw a time for each sequence, the times stratified over the global batch.

    Args:
        alpha: The schedule.
        streams: Where each sequence draws from.
        places: Where the sequences stand in the global batch.
        batch: The size of the global batch.
        device: Where the sequences are.
    """
    t = (1 - LEAST_TIME) * stratified(streams, places, batch, device) + LEAST_TIME
    time = t.double()  # in single precision 1 - α would lose what is small
    gone = 1 - alpha(time)
    # where nothing is gone nothing is masked, and any number will do
    wait = torch.where(gone > 0, gone / -alpha.slope(time), 1.0)
    return Moments(t, gone.to(t.dtype), wait.to(t.dtype))


def masked(
    alpha: Schedule, tokens: Tokens, streams: Randomness, places: range, batch: int
) -> tuple[Moments, Mask]:
    """Draw a time for each sequence, and which of its positions are masked by then.

    Args:
        alpha: The schedule.
        tokens: Items of the global batch.
        streams: Where each item draws from.
        places: Where the items stand in the global batch: each has a stratum of times.
        batch: The size of the global batch.
    """
    at = moments(alpha, streams, places, batch, tokens.device)
    u = uniform(tokens.shape, generator=streams, device=tokens.device)
    return at, u < (1 - LEAST_TIME) * at.gone
