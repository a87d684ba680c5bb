"""The surest first: exact with one token a step, and in the order it promises."""

from __future__ import annotations

import pytest
import torch

from dsl.core import oracle
from dsl.core.streams import stream
from dsl.core.types import MASK
from dsl.samplers.base import last
from dsl.samplers.confident import Confident, Sureness, sureness
from dsl.samplers.registry import sampler
from dsl.samplers.state import State
from tests.apps.zoo.test_timed import DRAWS, p_value
from tests.exact_times import enumerated

ORDERS: list[Sureness] = ["probability", "margin", "entropy"]


@pytest.mark.parametrize("order", ORDERS)
def test_one_token_a_step_draws_from_the_truth_whatever_the_order(order: Sureness) -> None:
    truth = enumerated(oracle.markov(3, 3, sharpness=0.8))
    end = last(Confident(3, order), truth, State.blank(DRAWS, 3), generator=stream(1))
    assert p_value(truth, end.tokens) > 1e-4
    assert (end.nfe == 3).all()


def test_tokens_that_are_certain_come_first() -> None:
    """One letter known of a rotation makes all others certain; of a chain, the neighbours surer."""
    rotations = oracle.cyclic(5)
    start = torch.full((1, 5), MASK)
    start[0, 2] = 4
    path = sampler("confident@4")
    states = list(path.steps(rotations, State.start(start), generator=stream(0)))
    assert states[-1].tokens.tolist() == [[2, 3, 4, 0, 1]]
    chain = oracle.markov(4, 9, sharpness=3.0)
    start = torch.full((1, 9), MASK)
    start[0, 4] = 1
    first = next(sampler("confident@8").steps(chain, State.start(start), generator=stream(0)))
    with torch.no_grad():
        p = chain(State.start(start).endpoints).softmax(-1).amax(-1)
    revealed = (first.tokens != MASK) & (start == MASK)
    assert revealed.sum() == 1
    assert p[revealed] == p[start == MASK].max()


def test_every_step_reveals_its_share() -> None:
    chain = oracle.markov(3, 8)
    left = [int(s.masked.sum()) for s in sampler("confident@3").steps(chain, State.blank(1, 8))]
    assert left == [5, 2, 0]
    early = list(sampler("confident@20").steps(chain, State.blank(1, 8)))
    assert [int(state.masked.sum()) for state in early][:8] == [7, 6, 5, 4, 3, 2, 1, 0]
    assert int(early[-1].nfe[0]) == 8, "steps with nothing left cost nothing"


def test_what_sure_means() -> None:
    rows = torch.tensor([[0.5, 0.45, 0.05], [0.48, 0.26, 0.26], [0.4, 0.3, 0.3]]).log()
    assert sureness(rows, "probability").argsort(descending=True).tolist() == [0, 1, 2]
    assert sureness(rows, "margin").argsort(descending=True).tolist() == [1, 2, 0]
    assert sureness(rows, "entropy").argsort(descending=True).tolist() == [0, 1, 2]
    certain = torch.tensor([[0.0, -torch.inf, -torch.inf]])
    assert sureness(certain, "entropy").tolist() == [0.0]
