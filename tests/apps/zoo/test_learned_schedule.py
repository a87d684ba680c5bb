"""A law of SNRs that learns: any law gives one expectation, the best law the least variance."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from dsl.apps.zoo.plaid import FLOOR, LearnedSchedule
from dsl.core import oracle
from dsl.core.streams import stream
from dsl.likelihoods.vdm import VdmBound, prior_nats
from tests.families.test_vp import Steered

LOW, HIGH = 1e-3, 60.0
FINE = (torch.arange(50_000).double() + 0.5) / 50_000


def schedule(seed: int | None = None, *, bins: int = 8) -> LearnedSchedule:
    """An untrained law, or one that something was learned by."""
    made = LearnedSchedule(LOW, HIGH, bins, learn_ends=False)
    if seed is not None:
        with torch.no_grad():
            made.increments.normal_(std=0.7, generator=stream(seed))
    return made


@torch.no_grad()
def test_untrained_it_is_log_uniform() -> None:
    snr, slope = schedule()(FINE)
    wanted = math.log(LOW) + FINE * math.log(HIGH / LOW)
    torch.testing.assert_close(snr.log(), wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(slope, snr * math.log(HIGH / LOW), rtol=1e-5, atol=0)


@torch.no_grad()
def test_it_rises_from_end_to_end_by_its_slope() -> None:
    made = schedule(1)
    ends, _ = made(torch.tensor([0.0, 1.0]).double())
    assert ends.tolist() == pytest.approx([LOW, HIGH], rel=1e-5)
    assert made.range == pytest.approx((LOW, HIGH), rel=1e-6)
    snr, slope = made(FINE)
    assert (snr.diff() > 0).all()
    risen = snr.diff() * len(FINE)
    between = (slope[1:] + slope[:-1]) / 2
    kinks = (risen / between - 1).abs() > 1e-3
    assert int(kinks.sum()) <= 2 * 8
    assert float(made.mass.sum()) == pytest.approx(1)
    assert float(made.mass.min()) >= FLOOR / 8


@torch.no_grad()
@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize("f", [lambda g: g * 0 + 1, lambda g: 1 / (1 + g), torch.sin])
def test_weighted_every_law_gives_the_same_integral(
    seed: int | None, f: Callable[[Tensor], Tensor]
) -> None:
    snr, slope = schedule(seed)(FINE)
    grid = torch.linspace(LOW, HIGH, 400_001).double()
    wanted = float(torch.trapezoid(f(grid), grid))
    assert float((f(snr) * slope).mean()) == pytest.approx(wanted, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("seed", [None, 3])
def test_the_bound_of_an_exact_denoiser_is_the_truth_under_any_law(seed: int | None) -> None:
    truth = oracle.markov(4, 3)
    tokens = truth.sample(6, generator=stream(1))
    law = schedule(seed)
    found = VdmBound(16, 48, law=law)(Steered(truth), tokens, generator=stream(2))
    prior = tokens.shape[1] * prior_nats(LOW, truth.codebook.shape[1])
    gap = float((found.nats + truth.log_prob(tokens)).mean()) - prior
    assert abs(gap) < 4 * found.mean_stderr + 0.005
    # weights that are none of this law's would be seen
    wrong = VdmBound(16, 48, law=lambda u: (law(u)[0], law(u)[1] * 1.5))
    away = wrong(Steered(truth), tokens, generator=stream(2)).nats - found.nats
    assert float(away.mean()) > 5 * found.mean_stderr


def error(snr: Tensor) -> Tensor:
    """A squared error as denoisers have it: 1 at first, then falling."""
    return (-snr / 3).exp()


def second_moment(made: LearnedSchedule) -> Tensor:
    """E[loss²] = Σ_k ∫ e² (dγ/ds)²/(k m_k) ds over even log-SNRs s, with a gradient for m."""
    s = FINE[::5]
    width = math.log(HIGH / LOW)
    snr = (math.log(LOW) + width * s).exp()
    bins = len(made.increments)
    density = made.mass.double()[(s * bins).long()] * bins
    return ((error(snr) * snr * width).square() / density).mean()


def test_it_is_steered_by_the_gradient_of_the_second_moment() -> None:
    made = schedule(5)
    (wanted,) = torch.autograd.grad(second_moment(made), made.increments)
    u = FINE.unsqueeze(1)
    snr, slope = made(u)
    found = made.steering(u, error(snr) * slope) / len(u)
    (gradient,) = torch.autograd.grad(found, made.increments)
    torch.testing.assert_close(gradient, wanted.to(gradient), rtol=0.02, atol=0.02)
    assert float(wanted.abs().max()) > 1


def test_following_it_leads_to_the_best_law() -> None:
    """The least E[loss²] draws a bin by the root of the mean square of e dγ/ds in it."""
    made = schedule()
    optimizer = torch.optim.Adam([made.increments], lr=0.1)
    before = float(second_moment(made).detach())
    for step in range(150):
        u = torch.rand(512, 1, generator=stream(step))
        snr, slope = made(u)
        optimizer.zero_grad()
        made.steering(u, error(snr) * slope).backward()
        optimizer.step()
    s = FINE[::5]
    snr = (math.log(LOW) + math.log(HIGH / LOW) * s).exp()
    bins = (s * 8).long()
    squares = torch.zeros(8).double().index_add(0, bins, (error(snr) * snr).square())
    best = squares.sqrt() / squares.sqrt().sum()
    best = FLOOR / 8 + (1 - FLOOR) * best
    torch.testing.assert_close(made.mass.detach().double(), best, rtol=0, atol=0.04)
    assert float(second_moment(made).detach()) < 0.5 * before
