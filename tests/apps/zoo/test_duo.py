"""DUO: the Gaussian operator, the bound against the truth, the curriculum, and the samplers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from dsl.apps.zoo.duo import (
    LEAST_TIME,
    DuoModel,
    DuoObjective,
    DuoOptions,
    DuoShape,
    UniformBound,
    jump_nats,
    latents,
    psi_posterior,
    readout_nats,
    signal_for,
    transformed,
)
from dsl.apps.zoo.kernel import Kernel
from dsl.apps.zoo.timed import Timed
from dsl.core import oracle
from dsl.core.alpha import Cosine, Linear, Schedule
from dsl.core.streams import Streams, stream
from dsl.core.types import MASK
from dsl.families.registry import FAMILIES
from dsl.samplers.base import last
from dsl.samplers.registry import sampler
from dsl.samplers.state import State
from tests.apps.zoo.test_timed import p_value
from tests.conftest import assert_near
from tests.exact_times import ExactTimed, double, enumerated, every
from tests.families.conftest import LENGTH, TOKENS, awake

DUO = FAMILIES["duo"]
TRUTHS: dict[str, Callable[[], oracle.Oracle]] = {
    "two-bit": oracle.two_bit,
    "cyclic": lambda: oracle.cyclic(3),
    "markov": lambda: oracle.markov(3, 3, sharpness=0.8),
}


class TestJumps:
    """ℓ, the integrand of the bound."""

    @pytest.mark.parametrize("alpha", [Linear(), Cosine()])
    @pytest.mark.parametrize("t", [0.01, 0.4, 0.99])
    def test_it_is_the_limit_of_the_posteriors_divergence(self, alpha: Schedule, t: float) -> None:
        """T KL(q(x_s | x_t, x_0) ‖ q(x_s | x_t, x̂_0)) of a short step, by the kernel itself."""
        kernel, dt = Kernel("uniform", 4), 1e-6
        noisy, clean = every(4, 2).T.unsqueeze(1)  # all pairs, in one sequence
        logits = torch.randn(1, 16, 4, generator=stream(0), dtype=torch.float64)
        sure = torch.nn.functional.one_hot(clean, 4).double()
        later, sooner = alpha(double(t)), alpha(double(t - dt))
        p = kernel.posterior(noisy, sure, later, sooner)
        q = kernel.posterior(noisy, logits.softmax(-1), later, sooner)
        wanted = (p * (p / q).log()).sum(-1) / dt
        found = jump_nats(noisy, clean, logits, later, alpha.slope(double(t)))
        torch.testing.assert_close(found, wanted, rtol=3e-4, atol=1e-7)

    def test_it_is_zero_for_known_tokens_and_for_pure_noise(self) -> None:
        tokens = torch.tensor([[0, 1, 2]])
        noisy = torch.tensor([[0, 2, 2]])
        known = 80 * torch.nn.functional.one_hot(tokens, 3).float()
        guess = torch.randn(1, 3, 3)
        one = torch.ones(1)
        assert jump_nats(noisy, tokens, known, 0.5 * one, -one).abs().max() < 1e-5
        assert torch.equal(jump_nats(noisy, tokens, guess, 0 * one, -one), torch.zeros(1, 3))
        assert (jump_nats(noisy, tokens, guess, 0.5 * one, -one) > 0).all()

    @pytest.mark.parametrize("alpha", [1e-3, 0.1, 0.5, 0.999])
    def test_single_precision_is_enough(self, alpha: float) -> None:
        """Training computes terms of order α²/α in float32 as α → 0."""
        noisy, tokens = torch.randint(50, (2, 1, 400), generator=stream(0))
        logits = torch.randn(1, 400, 50, generator=stream(1), dtype=torch.float64)
        given = torch.tensor([alpha]), -torch.ones(1)
        wanted = jump_nats(noisy, tokens, logits, *(one.double() for one in given))
        found = jump_nats(noisy, tokens, logits.float(), *given).double()
        assert_near(found, wanted)


class TestBound:
    @pytest.mark.parametrize("schedule", [Linear(), Cosine()])
    @pytest.mark.parametrize("name", TRUTHS)
    def test_by_enumeration_it_is_the_truth(self, name: str, schedule: Schedule) -> None:
        """Enumerates noisy sequences and integrates time by Gauss-Legendre, with t_0 = 1e-6."""
        truth = enumerated(TRUTHS[name]())
        network = ExactTimed(truth, "uniform", schedule)
        for tokens in truth.sequences[:2]:
            exact = -float(truth.log_prob(tokens.unsqueeze(0)))
            assert bound_by_enumeration(network, tokens, 1e-6) == pytest.approx(exact, abs=1e-5)
            coarse = bound_by_enumeration(network, tokens, LEAST_TIME)
            assert exact < coarse < exact + 2 * LEAST_TIME, "a bound, and nearly as tight"

    @pytest.mark.parametrize("name", TRUTHS)
    def test_the_estimator_is_the_truth(self, name: str) -> None:
        truth = TRUTHS[name]()
        network = ExactTimed(enumerated(truth), "uniform")
        tokens = truth.sample(40, generator=stream(1))
        found = UniformBound(4, 32)(network, tokens, generator=stream(2))
        exact = -truth.log_prob(tokens)
        assert abs(float((found.nats - exact).mean())) < 4 * found.mean_stderr + 2 * LEAST_TIME
        assert found.mean_stderr < 0.15 * float(exact.mean())

    def test_a_wrong_network_costs_more(self) -> None:
        truth = enumerated(oracle.markov(3, 3, sharpness=0.8))
        other = ExactTimed(enumerated(oracle.markov(3, 3, seed=1, sharpness=0.8)), "uniform")
        p = truth.log_weights.softmax(0)
        found = [bound_by_enumeration(other, row, 1e-4, 20) for row in truth.sequences]
        entropy = -float((p * p.log()).sum())
        assert float((p * double(*found)).sum()) > entropy + 0.1

    def test_the_objective_is_the_bound_without_its_read_out(self) -> None:
        """Two routes to one number: the loss of one text, and the estimator minus the read-out."""
        model, tokens = awake(DUO), TOKENS[:1]
        batch = tokens.expand(64, -1)  # the strata belong to places of the batch
        objective = DuoObjective(model, DuoOptions(curriculum=0.0))
        with torch.no_grad():
            losses = torch.stack([mean(objective, batch, seed) for seed in range(30)])
            t = torch.full((2000,), LEAST_TIME)
            many = tokens.expand(2000, -1)
            noisy = model.kernel.corrupt(many, 1 - t, generator=stream(3))
            last = readout_nats(model.kernel, noisy, many, model.at_time(noisy, t), 1 - t).mean(1)
        bound = UniformBound(32, 64)(model, tokens, generator=stream(0))
        wanted = float(bound.nats.mean()) / LENGTH - float(last.mean())
        errors = (losses.std() / 30**0.5, bound.mean_stderr / LENGTH, last.std() / 2000**0.5)
        error = sum(float(e) ** 2 for e in errors) ** 0.5
        assert abs(float(losses.mean()) - wanted) < 4 * error
        assert error < 0.05 * wanted

    def test_masks_and_invalid_times_are_refused(self) -> None:
        network = ExactTimed(enumerated(oracle.two_bit()), "absorbing")
        with pytest.raises(ValueError, match="bound needs uniform noise, got absorbing"):
            UniformBound()(network, torch.zeros(1, 2, dtype=torch.long))
        with pytest.raises(ValueError, match="least_time"):
            UniformBound(least_time=0.0)


def bound_by_enumeration(
    network: ExactTimed, clean: Tensor, least: float, points: int = 40
) -> float:
    """Sum over all x_t and integrate over t = t_0 + (1 - t_0) u^4, densest where ℓ has a cusp."""
    noisy = every(network.vocab_size, len(clean))
    nodes, weights = np.polynomial.legendre.leggauss(points)
    u, w = torch.tensor((nodes + 1) / 2), torch.tensor(weights / 2)
    times = torch.cat([least + (1 - least) * u**4, double(least)])
    total = 0.0
    for t, weight in zip(times, [*(4 * u**3 * (1 - least) * w), None], strict=True):
        t = t.expand(len(noisy))
        alpha, logits, many = network.alpha(t), network.at_time(noisy, t), clean.expand_as(noisy)
        log_q = network.kernel.log_likelihood(noisy, alpha)[:, torch.arange(len(clean)), clean]
        if weight is None:
            losses = readout_nats(network.kernel, noisy, many, logits, alpha)
        else:
            losses = weight * jump_nats(noisy, many, logits, alpha, network.alpha.slope(t))
        total += float((log_q.sum(1).exp() * losses.sum(1)).sum())
    return total


def mean(objective: DuoObjective, batch: Tensor, seed: int) -> Tensor:
    n = len(batch)
    return objective(batch, Streams.derive(seed, range(n)), range(n), n).mean.detach()


class TestCurriculum:
    def test_a_one_hot_mixture_is_a_token(self) -> None:
        model, t = awake(DUO), torch.linspace(0.1, 0.9, 8)
        assert isinstance(model, Timed)
        sure = torch.nn.functional.one_hot(TOKENS[:8], 5).float()
        assert_near(model.at_mixture(sure, t), model.at_time(TOKENS[:8], t))
        unsure = 0.5 * sure + 0.1
        assert (model.at_mixture(unsure, t) - model.at_time(TOKENS[:8], t)).abs().max() > 0.01

    def test_absorbing_noise_is_refused(self) -> None:
        with pytest.raises(ValueError, match="uniform noise over at least 2 tokens, got absorbing"):
            DuoShape(5, noise="absorbing")

    def test_it_lasts_its_share_of_the_run(self) -> None:
        model = awake(DUO)
        plain = mean(DuoObjective(model, DuoOptions(curriculum=0.0)), TOKENS, 0)
        objective = DuoObjective(model, DuoOptions(curriculum=0.25))
        softly = []
        for progress in (0.0, 0.24, 0.25, 0.9):
            objective.begin(progress)
            softly.append(not torch.equal(mean(objective, TOKENS, 0), plain))
        assert softly == [True, True, False, False]
        with pytest.raises(ValueError, match=r"curriculum must lie in \[0, 1\]"):
            DuoOptions(curriculum=1.5)

    def test_as_tau_vanishes_it_is_the_bound_in_expectation(self) -> None:
        """As τ → 0 the input is x_t with the same law, so the expected loss is the same."""
        model, batch = awake(DUO), TOKENS[:1].expand(64, -1)
        plain, cold = (
            torch.stack([mean(DuoObjective(model, options), batch, s) for s in range(30)])
            for options in (DuoOptions(curriculum=0.0), DuoOptions(1.0, temperature=1e-6))
        )
        error = float((plain.var() + cold.var()) / 30) ** 0.5
        assert abs(float(plain.mean() - cold.mean())) < 4 * error
        assert error < 0.1 * float(plain.mean())

    def test_the_input_is_the_latent_whose_argmax_is_scored(self) -> None:
        """Given the latent, the loss is deterministic and computed by hand."""
        model, streams = awake(DUO), Streams.derive(7, range(64))
        found = mean(DuoObjective(model, DuoOptions(1.0, temperature=0.5)), TOKENS, 7)
        u = torch.stack([torch.rand((), generator=g) for g in streams.generators])
        t = LEAST_TIME + (1 - LEAST_TIME) * (u + torch.arange(64)) / 64
        w = latents(TOKENS, 1 - t, 5, generator=streams)
        logits = model.at_mixture((2 * w).softmax(-1), t)
        wanted = jump_nats(w.argmax(-1), TOKENS, logits, 1 - t, -torch.ones(64)).mean()
        assert_near(found, (1 - LEAST_TIME) * wanted.detach())

    def test_it_learns_a_text_with_a_curriculum(self) -> None:
        torch.manual_seed(0)
        model = DuoModel(replace(awake(DUO).config, hidden_dim=32))
        objective = DuoObjective(model, DuoOptions())
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        batch = (torch.arange(6) % 5).expand(32, -1)
        for step in range(40):
            objective.begin(step / 40)
            loss = objective(batch, Streams.derive(step, range(32)), range(32), 32).mean
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        found = UniformBound(4, 16)(model.eval(), batch[:1], generator=stream(0))
        assert float(found.nats) < 7, "untrained: 6 log 5 = 9.7"


@pytest.mark.parametrize("v", [2, 27, 50_257])
def test_the_operator_is_monotone_and_inverted_by_its_table(v: int) -> None:
    alpha = double(0.0, 1e-3, 0.1, 0.5, 0.9, 0.999, 1.0)
    torch.testing.assert_close(transformed(signal_for(alpha, v), v), alpha, rtol=0, atol=2e-7)
    signal = torch.linspace(0, 1, 200, dtype=torch.float64)
    image = transformed(signal, v)
    assert abs(float(image[0])) < 1e-12 and float(image[-1]) == 1
    inner = image[image < 1 - 1e-9]
    assert (inner.diff() > 0).all() and len(inner) > 150


def test_for_two_tokens_it_is_an_error_function() -> None:
    """The difference of two coordinates is Gaussian: T = erf(α̃ / 2σ̃)."""
    ratio = double(0.0, 0.1, 1.0, 3.0, 6.0)
    found = transformed(ratio / (1 + ratio.square()).sqrt(), 2)
    torch.testing.assert_close(found, torch.erf(ratio / 2), rtol=0, atol=1e-14)


@pytest.mark.parametrize("v", [3, 40])
@pytest.mark.parametrize("alpha", [0.0, 0.2, 0.9])
def test_the_argmax_of_a_latent_has_the_law_of_corruption(v: int, alpha: float) -> None:
    """χ² of 20,000 positions against α δ + (1 - α) / V."""
    tokens = torch.ones(10, 2000, dtype=torch.long)
    w = latents(tokens, torch.full((10,), alpha), v, generator=stream(0))
    counts = torch.bincount(w.argmax(-1).flatten(), minlength=v)
    kernel = Kernel("uniform", v)
    law = kernel.log_likelihood(every(v, 1), torch.full((v,), alpha).double())[:, 0, 1].exp()
    assert chisquare(counts.numpy(), 20_000 * law.numpy()).pvalue > 1e-4


def test_a_latent_has_unit_variance_about_its_token() -> None:
    tokens = torch.randint(5, (4, 3000), generator=stream(0))
    alpha = torch.tensor([0.1, 0.4, 0.7, 0.99])
    signal = signal_for(alpha, 5)
    w = latents(tokens, alpha, 5, generator=stream(1)).double()
    x = torch.nn.functional.one_hot(tokens, 5)
    rest = w - signal.view(-1, 1, 1) * x
    torch.testing.assert_close(rest.square().mean((1, 2)), 1 - signal.square(), rtol=0.05, atol=0)


def test_a_vocabulary_of_one_token_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 tokens, got 1"):
        transformed(double(0.5), 1)


@pytest.mark.parametrize("kappa", [0.0, 0.3, 1.0])
def test_every_mixture_maps_marginals_to_marginals(kappa: float) -> None:
    """For one token whose x̂_0 is its prior: Σ q_t(x_t) Ψ(x_s | x_t) = q_s(x_s), for any t > s."""
    kernel, prior = Kernel("uniform", 4), double(0.5, 0.3, 0.2, 0.0)
    for later, sooner in ((0.0, 0.2), (0.2, 0.7), (0.7, 1.0)):
        given = [torch.full((4,), a, dtype=torch.float64) for a in (later, sooner)]
        rows = psi_posterior(kernel, every(4, 1), prior.expand(4, 1, 4), *given, kappa)
        before, after = (a * prior + (1 - a) / 4 for a in (later, sooner))
        torch.testing.assert_close(before @ rows[:, 0], after, rtol=0, atol=1e-14)


def test_its_error_falls_as_1_over_t_with_a_fixed_number_of_corrections() -> None:
    """All 9 texts by their transition matrix, with κ = 1 - 4/T."""
    errors = [distance(steps, 1 - 4 / steps) for steps in (20, 80)]
    assert errors[0] == pytest.approx(4 * errors[1], rel=0.1) and errors[1] < 0.01


@pytest.mark.parametrize("kappa", [0.95, 0.5])
def test_a_fixed_mixture_is_exact_in_the_limit_too(kappa: float) -> None:
    """The corrector changes fewer tokens as t → 0, so the error falls as T^-1/2."""
    errors = [distance(steps, kappa) for steps in (10, 160)]
    assert errors[1] < 0.4 * errors[0] and errors[1] < 0.02


@pytest.mark.parametrize("name", ["duo@60", "psi@60", "psi@60:kappa=0.9,t_on=1,t_off=0"])
def test_the_exact_network_draws_from_the_truth(name: str) -> None:
    truth = enumerated(oracle.markov(3, 2, sharpness=0.8))
    network = ExactTimed(truth, "uniform")
    end = last(sampler(name), network, State.blank(2000, 2), generator=stream(1))
    assert p_value(truth, end.tokens) > 1e-4


def test_a_wrong_network_is_noticed() -> None:
    truth = enumerated(oracle.markov(3, 2, sharpness=0.8))
    other = ExactTimed(enumerated(oracle.markov(3, 2, seed=1, sharpness=0.8)), "uniform")
    end = last(sampler("psi@30"), other, State.blank(2000, 2), generator=stream(1))
    assert p_value(truth, end.tokens) < 1e-9


def test_without_a_corrector_it_is_the_ancestral_sampler() -> None:
    network = ExactTimed(enumerated(oracle.markov(3, 4)), "uniform")
    same = ("timed@5", "duo@5", "psi@5:kappa=1", "psi@5:kappa=0.5,t_on=0.3,t_off=0.3")
    ends = [last(sampler(n), network, State.blank(50, 4), generator=stream(0)).tokens for n in same]
    assert all(torch.equal(end, ends[0]) for end in ends)
    other = last(sampler("psi@5"), network, State.blank(50, 4), generator=stream(0)).tokens
    assert not torch.equal(other, ends[0])


def test_a_greedy_end_takes_the_most_likely_tokens() -> None:
    network = ExactTimed(enumerated(oracle.markov(4, 3)), "uniform")
    start = torch.full((200, 3), MASK)
    start[:, 0] = 2
    walk = sampler("duo@4:greedy=true").steps(network, State.start(start), generator=stream(0))
    *_, before, end = walk
    answer = network.at_time(before.tokens, torch.full((200,), 0.25)).argmax(-1)
    assert torch.equal(end.tokens[:, 1:], answer[:, 1:])
    assert (end.tokens[:, 0] == 2).all() and (end.nfe == 4).all()
    plain = last(sampler("duo@4"), network, State.start(start), generator=stream(0))
    assert not torch.equal(plain.tokens, end.tokens)


def test_masks_and_invalid_weights_are_refused() -> None:
    network = ExactTimed(enumerated(oracle.two_bit()), "absorbing")
    with pytest.raises(ValueError, match="need uniform noise, got absorbing: use timed"):
        last(sampler("duo@4"), network, State.blank(2, 2))
    with pytest.raises(ValueError, match=r"kappa must lie in \[0, 1\], got 1.5"):
        sampler("psi@4:kappa=1.5")
    with pytest.raises(ValueError, match="t_off <= t_on"):
        sampler("psi@4:t_off=0.9")


def distance(steps: int, kappa: float) -> float:
    """Return the total variation between T steps of the exact network and the truth."""
    truth = enumerated(oracle.markov(3, 2, sharpness=0.8))
    network, texts = ExactTimed(truth, "uniform"), every(3, 2)
    p = torch.full((9,), 1 / 9, dtype=torch.float64)
    for k in range(steps):
        t, s = (torch.full((9,), 1 - j / steps, dtype=torch.float64) for j in (k, k + 1))
        clean = network.at_time(texts, t).softmax(-1)
        rows = psi_posterior(network.kernel, texts, clean, 1 - t, 1 - s, kappa)
        p = p @ (rows[:, 0, texts[:, 0]] * rows[:, 1, texts[:, 1]])
    return 0.5 * float((p - truth.log_prob(texts).exp()).abs().sum())
