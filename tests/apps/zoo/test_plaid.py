"""Plaid: Bayes' rule in its logits, its bound, and its learned schedule."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from dsl.apps.zoo.plaid import (
    FLOOR,
    SNR_FIRST,
    SNR_LAST,
    LearnedSchedule,
    PlaidModel,
    PlaidObjective,
    PlaidOptions,
)
from dsl.core import oracle
from dsl.core.channel import observe
from dsl.core.denoiser import posterior_mean
from dsl.core.streams import Streams, stream
from dsl.families.objective import Loss
from dsl.families.registry import FAMILIES
from dsl.likelihoods.estimate import Effort
from dsl.likelihoods.vdm import VdmBound, prior_nats
from tests.conftest import assert_near
from tests.families.conftest import TOKENS, awake, untrained
from tests.families.test_vp import Steered

PLAID = FAMILIES["plaid"]
PLACES = range(64)


def loss(made: PlaidObjective, seed: int, tokens: torch.Tensor = TOKENS) -> Loss:
    return made(tokens, Streams.derive(seed, PLACES), PLACES, 64)


def ends(network: PlaidModel, low: float, high: float) -> PlaidModel:
    with torch.no_grad():
        network.schedule.ends.copy_(torch.tensor([low, high]).log())
    return network


def test_its_initial_range_is_plaids() -> None:
    assert untrained(PLAID).snr_range == pytest.approx((math.exp(-6), math.exp(3)), rel=1e-6)
    assert pytest.approx((0.00248, 20.09), rel=1e-2) == (SNR_FIRST, SNR_LAST)
    fixed = untrained(PLAID, learn_range=False)
    assert not fixed.schedule.ends.requires_grad and untrained(PLAID).schedule.ends.requires_grad


@torch.no_grad()
def test_untrained_it_is_bayes_rule_for_independent_tokens() -> None:
    """In VP's coordinate y = αx + σε the same logits are (α/σ²) ⟨y, x_v⟩."""
    network = untrained(PLAID)
    gamma = 3.0
    z = observe(network.codebook[TOKENS], torch.full(TOKENS.shape, gamma), generator=stream(0))
    found = network.at_snr(z, torch.full((64,), gamma))
    distance = (z.unsqueeze(2) / gamma - network.codebook).square().sum(dim=-1)
    assert_near(found.log_softmax(-1), (-gamma * distance / 2).log_softmax(-1))
    alpha2, sigma2 = gamma / (1 + gamma), 1 / (1 + gamma)
    y = z * sigma2 / alpha2**0.5
    assert_near(found, alpha2**0.5 / sigma2 * y @ network.codebook.T)


@pytest.mark.parametrize("low, high", [(1e-3, 60.0), (0.1, 2.0)])
def test_untrained_its_bound_is_the_entropy_of_letters(low: float, high: float) -> None:
    """It is exact for independent letters, so the bound is log v for any range.

    The information in the first state is free; this gap is at most γ_min/2.
    """
    network = ends(untrained(PLAID), low, high)
    (bound,) = PLAID.estimators(network, Effort(2048, batch_size=2048))
    found = bound(network, TOKENS[:8], generator=stream(0))
    gap = float(found.nats.mean()) / 6 - math.log(5) - prior_nats(low, 4)
    assert -low / 2 - 4 * found.mean_stderr / 6 < gap < 4 * found.mean_stderr / 6


@pytest.mark.parametrize("told", [True, False])
def test_the_objective_is_the_bound(told: bool) -> None:
    """Two routes to one number, with the prior: the training loss of one text, and the estimator.

    With self-conditioning of all sequences, and without it.
    """
    network = awake(PLAID, self_conditioning=told)
    network = ends(network, 0.01, 10.0)
    text = TOKENS[:1]
    objective = PlaidObjective(network, PlaidOptions(told=1.0))
    with torch.no_grad():
        draws = torch.stack([loss(objective, s, text.expand(64, -1)).mean for s in range(40)])
    (bound,) = PLAID.estimators(network, Effort(2048, batch_size=2048))
    found = bound(network, text, generator=stream(0))
    error = (float(draws.std()) ** 2 / 40 + (found.mean_stderr / 6) ** 2) ** 0.5
    assert abs(float(draws.mean()) - float(found.nats) / 6) < 4 * error
    assert error < 0.1 * float(draws.mean())


def test_the_schedule_is_trained_by_the_square_and_the_rest_by_the_loss() -> None:
    """The gradient of the schedule changes neither the loss nor other gradients."""
    network = awake(PLAID)
    made = PlaidObjective(network, PlaidOptions())
    whole = loss(made, 0)
    value, count = whole.parts["all"]
    prior = prior_nats(network.snr_range[0], 4)
    assert float(whole.mean.detach()) == pytest.approx(float(value / count) + prior, rel=1e-5)
    whole.sum.backward()
    ours = {name: p.grad.clone() for name, p in network.named_parameters()}
    network.zero_grad()
    network.schedule.increments.requires_grad_(False)
    loss(made, 0).sum.backward()
    for name, parameter in network.named_parameters():
        if name != "schedule.increments":
            assert torch.equal(parameter.grad, ours[name]), name
    assert ours["schedule.increments"].abs().max() > 0


@torch.no_grad()
def moments(network: PlaidModel) -> tuple[float, float, float]:
    """E[loss] of the integral with its error, and E[loss²], from 2,560 sequences of SNRs."""
    tokens = TOKENS.repeat(40, 1)
    u = torch.rand(len(tokens), 1, generator=stream(7))
    snr, slope = network.schedule(u)
    x = network.codebook[tokens]
    z = observe(x, snr.expand(tokens.shape), generator=stream(8))
    x_hat = posterior_mean(network.at_snr(z, snr.squeeze(1)), network.codebook)
    losses = (0.5 * slope * (x - x_hat).square().sum(dim=-1)).mean(dim=1)
    error = float(losses.std()) / len(losses) ** 0.5
    return float(losses.mean()), error, float(losses.square().mean())


def test_a_learned_schedule_reduces_the_variance() -> None:
    """The expectation does not change."""
    network = untrained(PLAID, bins=8)
    made = PlaidObjective(network, PlaidOptions())
    optimizer = torch.optim.Adam([network.schedule.increments], lr=0.15)
    mean, error, square = moments(network)
    for seed in range(30):
        optimizer.zero_grad()
        loss(made, seed).sum.backward()
        optimizer.step()
    found, own, after = moments(network)
    assert after < 0.7 * square
    assert abs(found - mean) < 4 * (error**2 + own**2) ** 0.5


def test_the_ends_are_trained_by_the_bound() -> None:
    """Where x̂ = 0 the bound is prior(γ_min) + ½ (γ_max - γ_min) + log v, and so is its gradient."""
    network = ends(untrained(PLAID, evidence_logits=False), 0.5, 8.0)
    made = PlaidObjective(network, PlaidOptions())
    slopes = []
    for seed in range(12):
        network.zero_grad()
        loss(made, seed).mean.backward()
        slopes.append(network.schedule.ends.grad.clone())
    found = torch.stack(slopes)
    step = 1e-4
    first = (prior_nats(0.5 + step, 4) - prior_nats(0.5 - step, 4)) / (2 * step)
    wanted = torch.tensor([0.5 * (first - 0.5), 8.0 * 0.5])
    error = found.std(dim=0) / 12**0.5
    assert ((found.mean(dim=0) - wanted).abs() < 4 * error + 1e-3).all()


@pytest.mark.parametrize("change", [{"bins": 0}, {"snr_min": 30.0}, {"snr_max": 1e9}])
def test_invalid_shapes_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"bins must lie in|0 < snr_min < snr_max"):
        PLAID.Shape(5, **change)
    with pytest.raises(ValueError, match=r"reconstruction must lie in \(0, 1\)"):
        PlaidOptions(reconstruction=1.0)


def test_its_estimator_uses_the_learned_schedule() -> None:
    network = awake(PLAID)
    (bound,) = PLAID.estimators(network, Effort(8))
    assert isinstance(bound, VdmBound) and bound.law is network.schedule


LOW, HIGH = 1e-3, 60.0
FINE = (torch.arange(50_000).double() + 0.5) / 50_000


def schedule(seed: int | None = None, *, bins: int = 8) -> LearnedSchedule:
    """An untrained schedule, or a random one."""
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
def test_it_rises_between_its_ends_with_its_slope() -> None:
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
def test_every_schedule_gives_the_same_integral(
    seed: int | None, f: Callable[[Tensor], Tensor]
) -> None:
    snr, slope = schedule(seed)(FINE)
    grid = torch.linspace(LOW, HIGH, 400_001).double()
    wanted = float(torch.trapezoid(f(grid), grid))
    assert float((f(snr) * slope).mean()) == pytest.approx(wanted, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("seed", [None, 3])
def test_the_bound_of_an_exact_denoiser_is_the_truth_for_any_schedule(seed: int | None) -> None:
    truth = oracle.markov(4, 3)
    tokens = truth.sample(6, generator=stream(1))
    law = schedule(seed)
    found = VdmBound(16, 48, law=law)(Steered(truth), tokens, generator=stream(2))
    prior = tokens.shape[1] * prior_nats(LOW, truth.codebook.shape[1])
    gap = float((found.nats + truth.log_prob(tokens)).mean()) - prior
    assert abs(gap) < 4 * found.mean_stderr + 0.005
    # wrong weights would be noticed
    wrong = VdmBound(16, 48, law=lambda u: (law(u)[0], law(u)[1] * 1.5))
    away = wrong(Steered(truth), tokens, generator=stream(2)).nats - found.nats
    assert float(away.mean()) > 5 * found.mean_stderr


def error(snr: Tensor) -> Tensor:
    """A typical squared error: 1 at first, then falling."""
    return (-snr / 3).exp()


def second_moment(made: LearnedSchedule) -> Tensor:
    """E[loss²] = Σ_k ∫ e² (dγ/ds)²/(k m_k) ds over even log-SNRs s, with a gradient for m."""
    s = FINE[::5]
    width = math.log(HIGH / LOW)
    snr = (math.log(LOW) + width * s).exp()
    bins = len(made.increments)
    density = made.mass.double()[(s * bins).long()] * bins
    return ((error(snr) * snr * width).square() / density).mean()


def test_steering_has_the_gradient_of_the_second_moment() -> None:
    made = schedule(5)
    (wanted,) = torch.autograd.grad(second_moment(made), made.increments)
    u = FINE.unsqueeze(1)
    snr, slope = made(u)
    found = made.steering(u, error(snr) * slope) / len(u)
    (gradient,) = torch.autograd.grad(found, made.increments)
    torch.testing.assert_close(gradient, wanted.to(gradient), rtol=0.02, atol=0.02)
    assert float(wanted.abs().max()) > 1


def test_steering_converges_to_the_best_schedule() -> None:
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
