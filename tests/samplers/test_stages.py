"""A stage of a chain knows nothing of the stages before it but where they ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch

from dsl.core import oracle
from dsl.core.denoiser import Denoiser
from dsl.core.streams import Randomness, Streams
from dsl.samplers.base import Chain, Sampler, last
from dsl.samplers.masked import Ancestral
from dsl.samplers.refine import Commit, Refine
from dsl.samplers.reveal import FirstHitting, Reveal
from dsl.samplers.state import State

CHAIN = oracle.markov(6, 8)
B, L = 6, 8


@dataclass(frozen=True)
class Hide:
    """Send every free position back to [MASK], in one step."""

    asks: ClassVar[type] = Denoiser

    def steps(
        self, denoiser: Denoiser, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        if start.step == 0:
            yield replace(start.remask(start.free), step=1)


def fresh(state: State) -> State:
    """The same tokens and confidences, without any memory of a walk."""
    return State(state.tokens, state.fixed, state.nfe, state.confidence)


PAIRS: dict[str, tuple[Chain, Sampler]] = {
    "random order twice": (Chain((Reveal(), Hide())), Reveal()),
    "causal, then random": (Chain((Reveal("causal"), Hide())), Reveal()),
    "random, then causal": (Chain((Reveal(), Hide())), Reveal("causal")),
    "first hitting twice": (Chain((FirstHitting(4), Hide())), FirstHitting(4)),
    "fewer steps at first": (Chain((FirstHitting(2), Hide())), FirstHitting(8)),
    "one order, then hitting": (Chain((Reveal(), Hide())), FirstHitting(3)),
    "refined twice": (Chain((Ancestral(2), Refine(3))), Refine(3)),
    "refined, hidden, refined": (Chain((Commit(), Refine(2), Hide())), Refine(4)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_the_last_stage_walks_as_if_it_were_the_first(name: str) -> None:
    before, then = PAIRS[name]
    tokens = torch.full((B, L), -1)
    tokens[0, 2:4] = 3
    start = State.start(tokens)
    whole = Chain((*before.samplers, then)).steps(
        CHAIN, start, generator=Streams.derive(1, range(B))
    )
    chained = [state for state in whole if state.stage == len(before.samplers)]

    streams = Streams.derive(1, range(B))
    middle = last(before, CHAIN, start, generator=streams)
    alone = list(then.steps(CHAIN, fresh(middle), generator=streams))
    assert len(chained) == len(alone) > 0
    for ours, wanted in zip(chained, alone, strict=True):
        assert ours.step == wanted.step
        assert torch.equal(ours.tokens, wanted.tokens)
        assert torch.equal(ours.nfe, wanted.nfe)
    assert not chained[-1].masked.any()


def test_two_random_orders_of_one_chain_are_independent() -> None:
    """The place that is revealed first is the same in 1/l of the sequences, not in all."""
    n = 4000
    walk = Chain((Reveal(), Hide(), Reveal())).steps(
        CHAIN, State.blank(n, L), generator=Streams.derive(0, range(n))
    )
    first = {state.stage: (~state.masked).long().argmax(dim=1) for state in walk if state.step == 1}
    same = float((first[0] == first[2]).double().mean())
    assert abs(same - 1 / L) < 5 * (1 / L * (1 - 1 / L) / n) ** 0.5
