"""Self-conditioning: the second input in training, samplers and bound."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor

from dsl.apps.zoo.self_conditioning import RecallModel, ask_in_training
from dsl.core import oracle
from dsl.core.denoiser import SelfConditioned, listens, posterior_mean, settled
from dsl.core.streams import Streams, stream
from dsl.families.base import Family
from dsl.families.levels import AtClock
from dsl.families.registry import FAMILIES
from dsl.likelihoods.estimate import Effort
from dsl.likelihoods.vdm import VdmBound, prior_nats
from dsl.samplers.base import last
from dsl.samplers.registry import sampler
from dsl.samplers.state import State
from tests.conftest import assert_near
from tests.families.conftest import TOKENS, awake
from tests.families.test_vp import Steered

NAMES = ("plaid", "cdcd")
PATHS = ("vp@5", "vp-ode@5", "vp-ode@5:heun=false")


@pytest.fixture(params=NAMES)
def family(request: pytest.FixtureRequest) -> Family:
    return FAMILIES[request.param]


def deaf(family: Family) -> Any:
    """A network whose second input has zero weights."""
    network = awake(family)
    with torch.no_grad():
        network.recall.weight.zero_()
    return network


def without(family: Family, network: Any) -> Any:
    """The same network without the second input."""
    made = awake(family, self_conditioning=False)
    missing, unexpected = made.load_state_dict(network.state_dict(), strict=False)
    assert not missing and unexpected == ["recall.weight"]
    return made


class Spy:
    """Records a network's inputs and outputs."""

    def __init__(self, network: RecallModel) -> None:
        self.told: list[Tensor | None] = []
        self.answered: list[Tensor] = []
        self.ask = network.at_snr
        self.codebook = network.codebook
        network.at_snr = self  # type: ignore[method-assign, assignment]

    def __call__(self, z: Tensor, snr: Tensor, previous: Tensor | None = None) -> Tensor:
        logits = self.ask(z, snr, previous)
        self.told.append(previous)
        self.answered.append(posterior_mean(logits, self.codebook).detach())
        return logits


class SecondThoughts(Steered):
    """Wrong without self-conditioning, exact with it."""

    self_conditioned = True

    def at_snr(self, z: Tensor, snr: Tensor, previous: Tensor | None = None) -> Tensor:
        logits = super().at_snr(z, snr)
        nonsense = torch.zeros_like(logits)
        nonsense[..., 0] = 5.0
        if previous is None:
            return nonsense
        assert_near(previous.to(logits), posterior_mean(nonsense, self.codebook))
        return logits


def test_a_second_input_with_zero_weights_changes_nothing(family: Family) -> None:
    network = deaf(family)
    plain = without(family, network)
    assert listens(network) and not listens(plain)
    assert isinstance(network, SelfConditioned)
    z, snr = torch.randn(3, 6, 4, generator=stream(0)), torch.tensor([0.5, 2.0, 9.0])
    with torch.no_grad():
        assert torch.equal(network.at_snr(z, snr, torch.randn(3, 6, 4)), plain.at_snr(z, snr))
    bounds = [
        VdmBound(4, 4)(each, TOKENS[:4], generator=stream(0)).values for each in (network, plain)
    ]
    assert torch.equal(*bounds)
    for path in PATHS:
        ends = [last(sampler(path), each, State.blank(3, 6), generator=stream(1))
                for each in (network, plain)]  # fmt: skip
        assert torch.equal(ends[0].tokens, ends[1].tokens)
        assert torch.equal(ends[0].nfe, ends[1].nfe)


def test_only_a_trained_network_uses_the_second_input(family: Family) -> None:
    z, snr, x_hat = torch.randn(3, 6, 4), torch.tensor([0.5, 2.0, 9.0]), torch.randn(3, 6, 4)
    network = awake(family)
    with torch.no_grad():
        plain = network.at_snr(z, snr)
        assert_near(network.at_snr(z, snr, torch.zeros_like(z)), plain)
        assert (network.at_snr(z, snr, x_hat) - plain).abs().max() > 0.1
    fresh = family.build(network.config)
    assert not fresh.recall.weight.any()


def test_evaluation_calls_twice_and_passes_the_first_prediction(family: Family) -> None:
    network = awake(family)
    spy = Spy(network)
    z, snr = torch.randn(3, 6, 4), torch.tensor([0.5, 2.0, 9.0])
    settled(network, z, snr)
    assert len(spy.told) == 2 and spy.told[0] is None
    assert_near(spy.told[1], spy.answered[0])
    AtClock(2.0).ask(network, TOKENS[:2], generator=Streams.derive(0, range(2)))
    assert len(spy.told) == 4 and spy.told[3] is not None


@pytest.mark.parametrize("path", PATHS)
def test_a_sampler_passes_the_previous_prediction(family: Family, path: str) -> None:
    network = awake(family)
    spy = Spy(network)
    end = last(sampler(path), network, State.blank(3, 6), generator=stream(0))
    calls = len(spy.told)
    assert end.nfe.tolist() == [calls] * 3 and end.memory is None
    assert spy.told[0] is None
    for k in range(1, calls):
        assert_near(spy.told[k], spy.answered[k - 1])


@pytest.mark.parametrize("path", PATHS)
def test_a_resumed_sampler_keeps_the_previous_prediction(family: Family, path: str) -> None:
    network, start = awake(family), State.blank(3, 6)
    whole = last(sampler(path), network, start, generator=Streams.derive(0, range(3)))
    for stop in (1, 3):
        streams = Streams.derive(0, range(3))
        *_, head = islice(sampler(path).steps(network, start, generator=streams), stop)
        again = last(sampler(path), network, head, generator=streams)
        assert torch.equal(again.tokens, whole.tokens)
        assert torch.equal(again.confidence, whole.confidence)


def test_the_bound_uses_the_second_prediction(truth: oracle.Oracle) -> None:
    """Both terms do, and each draw costs two calls."""
    tokens = truth.sample(6, generator=stream(1))
    network = SecondThoughts(truth)
    found = VdmBound(16, 32)(network, tokens, generator=stream(2))
    prior = tokens.shape[1] * prior_nats(1e-3, truth.codebook.shape[1])
    gap = float((found.nats + truth.log_prob(tokens)).mean()) - prior
    assert abs(gap) < 4 * found.mean_stderr + 0.005
    plain = Steered(truth)
    VdmBound(16, 32)(plain, tokens, generator=stream(2))
    assert network.sequences == 2 * plain.sequences


def test_a_budget_counts_both_calls(family: Family) -> None:
    network = awake(family)
    with pytest.raises(ValueError, match="a budget of at least 8, got 7"):
        family.estimators(network, Effort(7))
    (bound,) = family.estimators(network, Effort(64))
    assert isinstance(bound, VdmBound)
    assert 2 * bound.replicates * (bound.draws + 1) == 64
    (cheap,) = family.estimators(awake(family, self_conditioning=False), Effort(4))
    assert isinstance(cheap, VdmBound) and cheap.replicates * (cheap.draws + 1) == 4


def test_in_training_a_share_is_self_conditioned_without_gradient(family: Family) -> None:
    network = awake(family)
    z, snr = torch.randn(400, 6, 4), torch.full((400,), 2.0)
    spy = Spy(network)
    logits = ask_in_training(network, z, snr, 0.25, Streams.derive(0, range(400)))
    _, previous = spy.told
    assert previous is not None and not previous.requires_grad and logits.requires_grad
    told = previous.flatten(1).any(dim=1)
    assert 60 < int(told.sum()) < 140
    assert_near(previous[told], spy.answered[0][told])
    spy.told.clear()
    network.recall = None
    ask_in_training(network, z, snr, 0.25, Streams.derive(0, range(400)))
    assert spy.told == [None]


@pytest.mark.parametrize("told", [0.0, 1.5])
def test_invalid_shares_are_refused(family: Family, told: float) -> None:
    with pytest.raises(ValueError, match=r"told must lie in \(0, 1\]"):
        family.Options(told=told)
    with pytest.raises(ValueError, match="0 < snr_min < snr_max"):
        family.Shape(5, snr_min=-1.0)
