from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from dsl.core import oracle
from dsl.core.denoiser import Endpoints
from dsl.core.path import sequential
from dsl.core.streams import stream
from dsl.samplers.base import Chain, last
from dsl.samplers.edm import Edm, karras
from dsl.samplers.localize import Localize
from dsl.samplers.refine import Commit, Refine, most_uncertain
from dsl.samplers.registry import sampler
from dsl.samplers.state import State
from tests.doubles import Double


def test_karras_grid() -> None:
    grid = karras(16, 0.49, 10.0)
    assert len(grid) == 17
    assert grid[0] == 10.0 and grid[-1] == 0.49
    ratios = [a / b for a, b in pairwise(grid)]
    assert 1.16 < min(ratios) < max(ratios) < 1.27  # what churn has to compete with
    roots = [sigma ** (1 / 7) for sigma in grid]
    steps = [a - b for a, b in pairwise(roots)]
    assert max(steps) - min(steps) < 1e-12


@pytest.mark.slow
def test_heun_converges_faster_than_euler() -> None:
    """Second against first order: halving the step divides the error by about 4 and 2."""
    toy = oracle.cyclic(5)
    start = State.blank(64, 5)

    def end(steps: int, *, heun: bool) -> torch.Tensor:
        walk = Edm(steps, sigma_max=4.0, stop=0.6, heun=heun)
        z = last(walk, toy, start, generator=stream(0)).z
        assert z is not None
        return z

    exact = end(1024, heun=True)
    for heun, order in ((False, 1), (True, 2)):
        coarse, fine = (float((end(n, heun=heun) - exact).norm()) for n in (32, 64))
        assert math.log2(coarse / fine) == pytest.approx(order, abs=0.35)


def test_the_two_readings_of_churn() -> None:
    """S_churn = 1.41 over 16 steps inflates σ by 8.8% a step; the factor 1.41 by 41%."""
    assert Edm(16, churn=1.41)._inflated(1.0) == pytest.approx(1.088, abs=1e-3)
    assert Edm(16, churn=1.41, churn_means="factor")._inflated(1.0) == pytest.approx(1.41)
    assert Edm(2, churn=1.41)._inflated(1.0) == pytest.approx(math.sqrt(2))
    assert Edm(16, churn=1.41, churn_min=2.0)._inflated(1.0) == 1.0


def test_states_carry_their_snr() -> None:
    toy = oracle.cyclic(5)
    for state in Edm(8, sigma_max=10.0, stop=0.5).steps(
        toy, State.blank(2, 5), generator=stream(0)
    ):
        assert state.snr is not None
    assert (state.snr == 4.0).all()
    assert (state.levels(100.0) == 4.0).all()


def test_localizing_along_an_order_reveals_along_it() -> None:
    toy = oracle.cyclic(5)
    walk = Localize(50, path=sequential(5, 30.0))
    states = list(walk.steps(toy, State.blank(3, 5), generator=stream(0)))
    assert (states[9].snr == torch.tensor([30.0, 0, 0, 0, 0])).all()
    end = last(Chain((walk, Commit())), toy, State.blank(200, 5), generator=stream(0))
    assert (toy.log_prob(end.tokens) > -torch.inf).double().mean() > 0.99


def test_fixed_positions_stay_at_their_endpoint_in_continuous_space() -> None:
    toy = oracle.cyclic(5)
    start = State.start(torch.tensor([[2, -1, -1, -1, -1]]))
    for walk in (Localize(20), Edm(10)):
        for state in walk.steps(toy, start, generator=stream(0)):
            assert state.z is not None
            torch.testing.assert_close(state.z[0, 0], 100.0 * toy.codebook[2])
    end = last(sampler("localize@60"), toy, start, generator=stream(0))
    assert end.tokens.tolist() == [[2, 3, 4, 0, 1]]


def test_the_hybrid_counts_two_calls_for_a_heun_step() -> None:
    end = last(sampler("hybrid@16+32"), oracle.cyclic(5), State.blank(2, 5), generator=stream(0))
    assert end.nfe.tolist() == [2 * 16 + 1 + 32] * 2


def test_refinement_masks_less_and_less() -> None:
    """Count what is hidden from the denoiser: ⌈r_k l⌉ tokens, r_k falling by a cosine."""
    chain, hidden = oracle.markov(6, 8), []

    class Spy(Double):
        codebook, snr_max = chain.codebook, chain.snr_max

        def __call__(self, z: Endpoints, /, *, at: torch.Tensor | None = None) -> torch.Tensor:
            hidden.append((z.tokens == -1).sum(dim=1))
            return chain(z, at=at)

    draft = last(sampler("mdlm@1"), chain, State.blank(16, 8), generator=stream(0))
    end = last(Refine(6), Spy(), replace(draft, step=0), generator=stream(1))
    assert not end.masked.any()
    for k, count in enumerate(hidden):
        share = end.memory * (1 + math.cos(math.pi * k / 6)) / 2
        assert torch.equal(count, (share * 8).ceil().long())


def test_the_most_uncertain_are_chosen_and_fixed_ones_never() -> None:
    state = State.start(torch.tensor([[5, -1, -1, -1, -1]]))
    at = torch.tensor([[False, True, True, True, False]])
    state = state.commit(at, torch.tensor([0, 1, 2]), torch.tensor([0.9, 0.2, 0.5]).double())
    chosen = most_uncertain(state, torch.tensor([2.0]).double())
    assert chosen.tolist() == [[False, False, True, False, True]]  # masked first, then 0.2


def test_refinement_repairs_a_broken_draft() -> None:
    """One pass of independent draws is mostly off the toy's support; refined, mostly on it."""
    toy = oracle.cyclic(7)
    draft = last(sampler("mdlm@1"), toy, State.blank(500, 7), generator=stream(0))
    refined = last(Refine(24), toy, replace(draft, step=0), generator=stream(1))
    before, after = (
        (toy.log_prob(s.tokens) > -torch.inf).double().mean() for s in (draft, refined)
    )
    assert before < 0.01 and after > 0.9


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: Edm(4, sigma_max=0.05), "0 < stop < sigma_max"),
        (lambda: Edm(4, churn=0.5, churn_means="factor"), "a factor in 1 … 10"),
        (lambda: Localize(4, noise=-1.0), "noise must be >= 0"),
        (lambda: Refine(4, r_min=0.9), "r_min <= r_max"),
        (lambda: Refine(0), "at least one step"),
    ],
)
def test_impossible_settings_are_refused(build: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()  # type: ignore[operator]


class Certain(Double):
    """A denoiser that is sure of one token, whatever it sees."""

    snr_max = 100.0

    def __init__(self) -> None:
        self.codebook = oracle.cyclic(5).codebook

    def __call__(self, z: torch.Tensor, *, at: torch.Tensor | None = None) -> torch.Tensor:
        logits = torch.zeros(*z.shape[:2], 5, dtype=torch.float64)
        logits[..., 2] = 1000.0
        return logits if at is None else logits[at]


@pytest.mark.parametrize("steps", [1, 7])
def test_increments_add_up_to_the_end_of_the_path(steps: int) -> None:
    """Sure of x all along, a walk without noise ends at γ_end x, in any number of steps."""
    sure = Certain()
    end = last(Localize(steps, snr_max=30.0, noise=0.0), sure, State.blank(2, 3))
    assert end.z is not None
    torch.testing.assert_close(end.z.double(), (30.0 * sure.codebook[2].double()).expand(2, 3, -1))


def test_the_levels_of_endpoints_are_none_and_all() -> None:
    state = State.start(torch.tensor([[3, -1, 0]]))
    assert state.levels(50.0).tolist() == [[50.0, 0.0, 50.0]]
