"""Cost of every family relative to MDLM on the same blocks: training step, call, weights."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dsl.core import Streams, stream
from dsl.families import FAMILIES, Family, Objective
from dsl.likelihoods import Mean
from dsl.samplers import State, last
from dsl.samplers import registry as presets

BESIDE = "mdlm"
TEXT8_TINY = {"hidden_dim": 192, "cond_dim": 32, "n_blocks": 6, "n_heads": 6, "dropout": 0.0}
OWN = {"prism": "prism@T"}
"""Families that are timed with their own sampler instead of MDLM's."""


@dataclass(frozen=True)
class Cost:
    """Times of one family relative to MDLM, measured alternately."""

    family: str
    weights: int
    step: float
    """Forward and backward pass of the objective."""
    step_stderr: float
    sampler: str
    call: float
    """One network call while sampling, with the sampler's own work."""
    call_stderr: float


def costs(
    names: Sequence[str] = (),
    *,
    vocab_size: int = 27,
    length: int = 128,
    batch: int = 4,
    calls: int = 4,
    rounds: int = 5,
    seed: int = 0,
) -> Iterator[Cost]:
    """Time every family against MDLM, round by round, untrained and at text8-tiny's size."""
    for name in names:
        if name not in FAMILIES:
            raise ValueError(f"unknown family {name!r}; expected one of {', '.join(FAMILIES)}")
    tokens = torch.randint(vocab_size, (batch, length), generator=stream(seed))
    for name in names or FAMILIES:
        torch.manual_seed(seed)
        pair = [_Timing.of(FAMILIES[each], vocab_size, length, calls) for each in (name, BESIDE)]
        steps = [[timing.step(tokens, seed) for timing in pair] for _ in range(rounds + 1)]
        draws = [[timing.call(batch, length, seed) for timing in pair] for _ in range(rounds + 1)]
        step, draw = _ratio(steps[1:]), _ratio(draws[1:])  # the first round is for warming up
        yield Cost(name, pair[0].weights, *step, pair[0].sampler, *draw)


@dataclass(frozen=True)
class _Timing:
    network: Any
    objective: Objective
    sampler: str

    @classmethod
    def of(cls, family: Family, vocab_size: int, length: int, calls: int) -> _Timing:
        network = family.build(family.shape(vocab_size, length, TEXT8_TINY))
        options = family.Options()
        return cls(network, family.objective(network, options), _own(family, calls))

    @property
    def weights(self) -> int:
        return sum(parameter.numel() for parameter in self.network.parameters())

    def step(self, tokens: torch.Tensor, seed: int) -> float:
        places = range(len(tokens))
        self.network.train()
        self.objective.zero_grad()
        began = time.perf_counter()
        self.objective(tokens, Streams.derive(seed, places), places, len(tokens)).mean.backward()
        return time.perf_counter() - began

    def call(self, batch: int, length: int, seed: int) -> float:
        self.network.eval()
        began = time.perf_counter()
        end = last(
            presets.sampler(self.sampler),
            self.network,
            State.blank(batch, length),
            generator=Streams.derive(seed, range(batch)),
        )
        return (time.perf_counter() - began) / float(end.nfe.double().mean())


def _own(family: Family, calls: int) -> str:
    """Choose MDLM's sampler if it supports the family, else the first one that does."""
    serving = presets.serving(family.protocol)
    usual = f"{BESIDE}@T" if f"{BESIDE}@T" in serving else serving[0]
    return OWN.get(family.name, usual).replace("@T", f"@{calls}")


def _ratio(pairs: Sequence[Sequence[float]]) -> tuple[float, float]:
    found = Mean.of([ours / theirs for ours, theirs in pairs])
    return found.mean, found.stderr
