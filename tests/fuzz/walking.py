"""Walk a sampler that was read, if it is short: what is accepted must also work."""

from __future__ import annotations

from dsl.checkpoints.loading import load
from dsl.generation.engine import generate
from dsl.samplers.base import Chain, Sampler

TOY = load("oracle:two-bit")
MOST = 16


def walk(sampler: Sampler) -> None:
    """Draw one sequence, unless that takes many steps or a network that the toy is not."""
    stages = sampler.samplers if isinstance(sampler, Chain) else (sampler,)
    steps = [getattr(stage, "num_steps", 1) for stage in stages]
    if sum(steps) > MOST or sampler.asks not in TOY.family.protocol.__mro__:
        return
    (sample,) = generate(TOY, sampler=sampler)
    assert len(sample.tokens) == TOY.length and set(sample.text) <= set("01")
