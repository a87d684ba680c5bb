"""Measure the cost of a step on a copy of the objective, before the first step.

The copy is discarded and its noise is derived from the seed, so a rehearsal does not change the
run.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from dsl.core.streams import Streams, stream
from dsl.core.types import Tokens
from dsl.families.objective import Objective
from dsl.models.dropout import seed_dropout

MOST_TOKENS = 4096
"""Tokens in a rehearsal: enough for a representative speed."""


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """A disposable copy of an objective with items of the first batch."""

    objective: Objective
    tokens: Tokens
    places: range
    batch: int
    seed: int

    @classmethod
    def of(
        cls,
        objective: Objective,
        batches: Callable[[int, range, int], Tokens],
        *,
        batch: int,
        most: int,
        seed: int,
        device: torch.device,
    ) -> Rehearsal:
        """Copy an objective, with items spread evenly over the first batch.

        They are spread because an objective may depend on the place in the batch.
        """
        length = batches(0, range(1), batch).shape[1]
        wanted = max(1, min(batch, most, MOST_TOKENS // length))
        places = range(0, batch, math.ceil(batch / wanted))
        tokens = batches(0, places, batch).to(device)
        return cls(copy.deepcopy(objective).to(device), tokens, places, batch, seed)

    def step(self, *, bf16: bool = False) -> None:
        """Run one forward and backward pass without advancing torch's random numbers."""
        device = self.tokens.device
        self.objective.zero_grad(set_to_none=True)
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            streams = item_noise(self.objective, self.seed, 0, self.places, device)
            self.objective.begin(0.0)
            with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
                loss = self.objective(self.tokens, streams, self.places, self.batch)
            loss.mean.backward()

    def flops_per_token(self) -> float:
        """Count the operations of all matrix products of a step, forward and backward.

        Attention runs unfused, because the counter does not see the fused CPU kernel.
        """
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            self.step()
        return float(counter.get_total_flops()) / self.tokens.numel()

    def products(self) -> list[tuple[int, int]]:
        """List the distinct shapes of the network's matrices."""
        matrices = (tuple(p.shape) for p in self.objective.model.parameters() if p.ndim == 2)
        return sorted({(m, n) for m, n in matrices})

    def width(self) -> int:
        """Return the most frequent side length of the network's matrices; the longest of a tie."""
        sides = Counter(
            side for p in self.objective.model.parameters() if p.ndim == 2 for side in p.shape
        )
        return max(sides, key=lambda side: (sides[side], side), default=0)


def item_noise(
    objective: Objective, seed: int, step: int, places: range, device: torch.device
) -> Streams:
    """Return a random stream per item and one shared by the step; also seed dropout per item.

    The shared stream is the same for every micro-batch. It stays on the CPU, so its numbers do not
    depend on the device of the run.
    """
    seeds = [stream(seed, step, i, 1).initial_seed() for i in places]
    seed_dropout(objective, torch.tensor(seeds, device=device))
    own = tuple(stream(seed, step, i, device=device) for i in places)
    return Streams(own, shared=stream(seed, step))
