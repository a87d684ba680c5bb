"""The autoregressive family: exact likelihoods of prefixes, and nothing else."""

from __future__ import annotations

import math

import pytest
import torch

from dsl.core.denoiser import Continuous, Denoiser, Endpoints
from dsl.core.streams import Streams
from dsl.families.ar import ArModel
from dsl.families.registry import FAMILIES
from dsl.likelihoods.chain_rule import ChainRule
from tests.conftest import assert_near
from tests.families.conftest import TOKENS, awake, untrained

AR = FAMILIES["ar"]


def test_untrained_its_loss_is_the_uniform_one() -> None:
    objective = AR.objective(untrained(AR), AR.Options())
    found = objective(TOKENS, Streams.derive(0, range(64)), range(64), 64)
    assert float(found.mean.detach()) == pytest.approx(math.log(5))


@torch.no_grad()
def test_its_loss_is_its_likelihood() -> None:
    """Two routes to one number: the training loss, and the chain rule's -log P."""
    model = awake(AR)
    objective = AR.objective(model, AR.Options())
    found = objective(TOKENS, Streams.derive(0, range(64)), range(64), 64)
    assert_near(found.sum, ChainRule(batch_size=10)(model, TOKENS).nats.sum().float())


@torch.no_grad()
def test_it_answers_about_prefixes() -> None:
    model = awake(AR)
    assert isinstance(model, ArModel) and isinstance(model, Denoiser)
    assert not isinstance(model, Continuous)
    whole = model.teacher_forced(TOKENS)
    for k in (0, 3, 5):
        prefix = TOKENS.clone()
        prefix[:, k:] = -1
        at = torch.zeros_like(TOKENS, dtype=torch.bool)
        at[:, k] = True
        assert_near(model(Endpoints(prefix), at=at), whole[:, k])
    nats = ChainRule(batch_size=10)(model, TOKENS).nats
    wanted = -whole.log_softmax(-1).gather(-1, TOKENS.unsqueeze(-1)).sum(dim=(1, 2))
    assert_near(nats.float(), wanted)


@torch.no_grad()
def test_what_comes_later_does_not_count() -> None:
    model, other = awake(AR), TOKENS.clone()
    other[:, 3:] = (other[:, 3:] + 1) % 5
    ours, theirs = model.teacher_forced(TOKENS), model.teacher_forced(other)
    assert_near(ours[:, :4], theirs[:, :4])
    assert (ours[:, 4:] - theirs[:, 4:]).abs().max() > 0.01


def test_it_refuses_what_it_cannot_know() -> None:
    model = untrained(AR)
    gap, suffix = torch.tensor([[1, -1, -1]]), torch.tensor([[-1, -1, 2]])
    last, first = torch.tensor([[False, False, True]]), torch.tensor([[True, False, False]])
    for tokens, at in ((gap, last), (suffix, first)):
        with pytest.raises(ValueError, match="generates from left to right"):
            model(Endpoints(tokens), at=at)
    with pytest.raises(ValueError, match="generates from left to right"):
        model(torch.zeros(1, 3, 5))
    with pytest.raises(ValueError, match="generates from left to right"):
        model(Endpoints(torch.tensor([[1, -1]]), torch.ones(1, 2, 5)))
