"""MD4: the bound of an exact network is exact, and without a time input it is ROAR's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from dsl.apps.zoo.kernel import Kernel
from dsl.apps.zoo.md4 import MaskedBound
from dsl.apps.zoo.timed import Timed, TimedModel
from dsl.core import oracle
from dsl.core.alpha import Cosine, Linear, Polynomial, Schedule, time_of
from dsl.core.denoiser import Denoiser, Endpoints
from dsl.core.streams import Streams, stream
from dsl.families.registry import FAMILIES, read
from dsl.likelihoods.roar import Enumerated
from tests.doubles import Double
from tests.exact_times import ExactTimed, enumerated
from tests.families.conftest import TOKENS, awake, untrained

MD4, MDLM = FAMILIES["md4"], FAMILIES["mdlm"]
SCHEDULES = [Linear(), Cosine(), Polynomial(1.4), Polynomial(3.0)]


class Deaf(Double):
    """A network that ignores the time."""

    def __init__(self, network: Denoiser, alpha: Schedule) -> None:
        self.network, self.alpha = network, alpha
        self.kernel = Kernel("absorbing", network.vocab_size)
        self.codebook = torch.eye(network.vocab_size)

    def at_time(self, tokens: Tensor, t: Tensor) -> Tensor:
        return self.network(Endpoints(tokens))


@pytest.mark.parametrize("alpha", SCHEDULES)
def test_the_bound_of_an_exact_network_is_the_truth(truth: oracle.Oracle, alpha: Schedule) -> None:
    tokens = truth.sample(6, generator=stream(1))
    exact = ExactTimed(enumerated(truth), "absorbing", alpha)
    found = MaskedBound(replicates=16, draws=32)(exact, tokens, generator=stream(2))
    error = 4 * found.stderr + 1e-9
    assert (found.stderr < 0.25 * found.nats).all()
    assert ((found.nats + truth.log_prob(tokens)).abs() < error).all()


def test_a_wrong_network_costs_more() -> None:
    truth, other = oracle.markov(3, 3, sharpness=0.8), oracle.markov(3, 3, seed=1, sharpness=0.8)
    tokens = truth.sample(50, generator=stream(1))
    wrong = ExactTimed(enumerated(other), "absorbing")
    found = MaskedBound(8, 16)(wrong, tokens, generator=stream(2))
    excess = float((found.nats + truth.log_prob(tokens)).mean())
    assert excess > 10 * found.mean_stderr


@torch.no_grad()
@pytest.mark.parametrize("alpha", SCHEDULES)
def test_without_a_time_input_it_is_roar_for_any_schedule(alpha: Schedule) -> None:
    network = awake(MDLM)
    found = MaskedBound(32, 32)(Deaf(network, alpha), TOKENS[:2], generator=stream(0))
    wanted = Enumerated()(network, TOKENS[:2])
    assert (found.stderr < 0.05 * found.nats).all()
    assert ((found.nats - wanted.nats).abs() < 4 * found.stderr).all()


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_the_objective_is_the_bound(schedule: str) -> None:
    """Two routes to one number, up to times below the least time."""
    network, text = awake(MD4, schedule=schedule), TOKENS[:1].expand(64, -1)
    objective, places = MD4.objective(network, MD4.Options()), range(64)
    with torch.no_grad():
        draws = torch.stack([
            objective(text, Streams.derive(seed, places), places, 64).mean for seed in range(30)
        ])  # fmt: skip
    bound = MaskedBound(32, 64)(network, TOKENS[:1], generator=stream(0))
    error = 4 * (float(draws.std()) ** 2 / 30 + (bound.mean_stderr / 6) ** 2) ** 0.5
    wanted = float(bound.nats) / 6
    assert error < 0.1 * wanted
    assert abs(float(draws.mean()) - wanted) < error + 0.004 * wanted


@torch.no_grad()
def test_the_network_depends_on_the_time() -> None:
    network = awake(MD4)
    assert isinstance(network, Timed)
    early, late = (network.at_time(TOKENS, torch.full((64,), t)) for t in (0.2, 0.8))
    assert (early - late).abs().max() > 0.01


def test_it_has_as_many_weights_as_mdlm() -> None:
    sizes = [sum(p.numel() for p in untrained(family).parameters()) for family in (MD4, MDLM)]
    assert sizes[0] == sizes[1]


def test_its_schedule_is_saved(tmp_path: Path) -> None:
    """The sampler and the bound need it."""
    MD4.write(awake(MD4, schedule="polynomial", power=3.0), tmp_path)
    network = read(tmp_path)[1]
    assert isinstance(network, TimedModel) and network.alpha == Polynomial(3.0)


def test_other_noise_is_refused() -> None:
    with pytest.raises(ValueError, match="absorbing noise, got uniform"):
        untrained(MD4, noise="uniform")
    uniform = ExactTimed(enumerated(oracle.two_bit()), "uniform")
    with pytest.raises(ValueError, match="bound needs absorbing noise, got uniform"):
        MaskedBound()(uniform, torch.zeros(1, 2, dtype=torch.long))


@pytest.mark.parametrize("alpha", SCHEDULES)
def test_times_are_computed_from_shares(alpha: Schedule) -> None:
    gone = torch.linspace(0, 1, 101, dtype=torch.float64)
    t = time_of(alpha, gone)
    assert (t >= 0).all() and (t <= 1).all()
    torch.testing.assert_close(1 - alpha(t), gone, atol=1e-7, rtol=0)
