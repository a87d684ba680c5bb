"""The probability-flow ODE of a network with a clock: no noise on the way, and yet the truth."""

from __future__ import annotations

import pytest
import torch

from dsl.core import oracle
from dsl.core.streams import stream
from dsl.core.types import MASK
from dsl.samplers.base import last
from dsl.samplers.clocked import ClockedOde
from dsl.samplers.edm import karras
from dsl.samplers.registry import sampler
from dsl.samplers.specification import from_data, to_data
from dsl.samplers.state import State
from tests.apps.zoo.test_timed import p_value
from tests.exact_times import enumerated
from tests.families.test_vp import Steered

DRAWS = 6_000


@pytest.mark.parametrize("name", ["vp-ode@12", "vp-ode@40:heun=false"])
def test_the_exact_network_draws_from_the_truth(name: str) -> None:
    truth = enumerated(oracle.markov(3, 3, sharpness=0.8))
    end = last(sampler(name), Steered(truth), State.blank(DRAWS, 3), generator=stream(1))
    assert p_value(truth, end.tokens) > 1e-4


def test_a_wrong_network_is_noticed() -> None:
    truth = enumerated(oracle.markov(3, 3, sharpness=0.8))
    other = Steered(enumerated(oracle.markov(3, 3, seed=1, sharpness=0.8)))
    end = last(sampler("vp-ode@8"), other, State.blank(DRAWS, 3), generator=stream(1))
    assert p_value(truth, end.tokens) < 1e-9


@pytest.mark.parametrize("heun, calls", [(True, 9), (False, 5)])
def test_the_clock_tells_the_snr_of_karras_grid(heun: bool, calls: int) -> None:
    """T - 1 steps of one or two calls, and the read-out at the last SNR."""
    network = Steered(oracle.cyclic(5))
    path = ClockedOde(5, heun=heun)
    end = last(path, network, State.blank(3, 5), generator=stream(0))
    assert end.nfe.tolist() == [calls] * 3 and network.sequences == 3 * calls
    grid = [sigma**-2 for sigma in karras(4, 60.0**-0.5, 1e-3**-0.5)]
    wanted = [grid[0], *(snr for snr in grid[1:] for _ in range(1 + heun))]
    assert [float(snr[0]) for _, snr in network.told] == pytest.approx(wanted, rel=1e-5)


def test_one_step_is_a_read_out_of_noise() -> None:
    network = Steered(oracle.cyclic(5))
    end = last(ClockedOde(1), network, State.blank(2, 5), generator=stream(0))
    assert [float(snr[0]) for _, snr in network.told] == pytest.approx([1e-3])
    assert not end.masked.any() and end.nfe.tolist() == [1, 1]


def test_a_known_token_moves_along_a_straight_line() -> None:
    """Its y = x + σε keeps its ε at every step, so that its state has the SNR it should."""
    network = Steered(oracle.cyclic(5))
    start = torch.full((400, 5), MASK)
    start[:, 0] = 2
    last(ClockedOde(6), network, State.start(start), generator=stream(0))
    x = network.codebook[2]
    noises = [(z[:, 0].double() - snr[0] * x) / snr[0] ** 0.5 for z, snr in network.told]
    for eps in noises[1:]:
        torch.testing.assert_close(eps, noises[0], rtol=0, atol=1e-3)
    assert float(noises[0].square().mean()) == pytest.approx(1, abs=0.12)


def test_nothing_is_random_after_the_start() -> None:
    network = Steered(oracle.markov(4, 5))
    states = list(ClockedOde(6).steps(network, State.blank(3, 5), generator=stream(0)))
    again = list(ClockedOde(6).steps(network, states[0], generator=stream(1)))
    for one, other in zip(states[1:-1], again[:-1], strict=True):
        assert one.z is not None and other.z is not None
        assert torch.equal(one.z, other.z)


def test_it_is_written_and_read_and_refuses_what_makes_no_grid() -> None:
    path = sampler("vp-ode@9:rho=3,heun=false")
    assert path == ClockedOde(9, 3.0, heun=False) and from_data(to_data(path)) == path
    with pytest.raises(ValueError, match=r"rho must lie in 0.1 … 100, got 0"):
        ClockedOde(9, 0.0)
