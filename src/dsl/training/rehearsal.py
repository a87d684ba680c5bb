"""A rehearsal: a copy of the objective takes a piece of the first batch forward and back.

It is how a run learns what a step costs before it takes one. The copy is thrown away, noise is
derived again and not drawn on, so the run itself is what it would have been without.
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
"""Enough to be at the speed of a long run."""


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """An objective to be used up, and some of its items."""

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
        """Copy an objective, with items from all over the first batch.

        All over, because an objective may treat the places of a batch differently.
        """
        length = batches(0, range(1), batch).shape[1]
        wanted = max(1, min(batch, most, MOST_TOKENS // length))
        places = range(0, batch, math.ceil(batch / wanted))
        tokens = batches(0, places, batch).to(device)
        return cls(copy.deepcopy(objective).to(device), tokens, places, batch, seed)

    def step(self, *, bf16: bool = False) -> None:
        """Go forward and back once; torch's own random numbers stay where they are."""
        device = self.tokens.device
        self.objective.zero_grad(set_to_none=True)
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            streams = item_noise(self.objective, self.seed, 0, self.places, device)
            self.objective.begin(0.0)
            with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
                loss = self.objective(self.tokens, streams, self.places, self.batch)
            loss.mean.backward()

    def flops_per_token(self) -> float:
        """Count the operations of all matrix products of a step, forward and back.

        Attention is counted as the two products it is: the fused kernel of CPUs counts for none.
        """
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            self.step()
        return float(counter.get_total_flops()) / self.tokens.numel()

    def products(self) -> list[tuple[int, int]]:
        """List the sizes of the matrices of the network, each once."""
        matrices = (tuple(p.shape) for p in self.objective.model.parameters() if p.ndim == 2)
        return sorted({(m, n) for m, n in matrices})

    def width(self) -> int:
        """Return the side that most matrices of the network have; of several the longest."""
        sides = Counter(
            side for p in self.objective.model.parameters() if p.ndim == 2 for side in p.shape
        )
        return max(sides, key=lambda side: (sides[side], side), default=0)


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
