"""What is random in a step: a function of the seed, the step and the place in the global batch."""

from __future__ import annotations

import torch

from dsl.models.dropout import seed_dropout
from dsl.streams import Streams, stream
from dsl.training.objective import Objective


def item_noise(
    objective: Objective, seed: int, step: int, places: range, device: torch.device
) -> Streams:
    """Give every item a stream and dropout of its own, and the whole step one that all share.

    The shared stream is made anew for every piece of the batch, so all pieces draw the same from
    it. It stays on the CPU, where a seed gives the same numbers whatever the device of the run.
    """
    seeds = [stream(seed, step, i, 1).initial_seed() for i in places]
    seed_dropout(objective, torch.tensor(seeds, device=device))
    own = tuple(stream(seed, step, i, device=device) for i in places)
    return Streams(own, shared=stream(seed, step))
