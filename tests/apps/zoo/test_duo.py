"""Uniform-state diffusion: its bound against the truth, and its curriculum against its bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
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
    readout_nats,
)
from dsl.apps.zoo.kernel import Kernel
from dsl.apps.zoo.protocols import Timed
from dsl.core import oracle
from dsl.core.alpha import Cosine, Linear, Schedule
from dsl.core.streams import Streams, stream
from dsl.families.registry import FAMILIES
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

    def test_it_is_nothing_where_the_token_is_known_and_where_all_is_noise(self) -> None:
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
        """Training computes in float32 what is of order α² as α → 0, divided by α."""
        noisy, tokens = torch.randint(50, (2, 1, 400), generator=stream(0))
        logits = torch.randn(1, 400, 50, generator=stream(1), dtype=torch.float64)
        given = torch.tensor([alpha]), -torch.ones(1)
        wanted = jump_nats(noisy, tokens, logits, *(one.double() for one in given))
        found = jump_nats(noisy, tokens, logits.float(), *given).double()
        assert_near(found, wanted)


class TestBound:
    @pytest.mark.parametrize("schedule", [Linear(), Cosine()])
    @pytest.mark.parametrize("name", TRUTHS)
    def test_without_chance_it_is_the_truth(self, name: str, schedule: Schedule) -> None:
        """All noisy sequences by enumeration, the time by Gauss-Legendre: -log P to 1e-6 t_0."""
        truth = enumerated(TRUTHS[name]())
        network = ExactTimed(truth, "uniform", schedule)
        for tokens in truth.sequences[:2]:
            exact = -float(truth.log_prob(tokens.unsqueeze(0)))
            assert bound_by_enumeration(network, tokens, 1e-6) == pytest.approx(exact, abs=1e-5)
            coarse = bound_by_enumeration(network, tokens, LEAST_TIME)
            assert exact < coarse < exact + 2 * LEAST_TIME, "a bound, and hardly a looser one"

    @pytest.mark.parametrize("name", TRUTHS)
    def test_the_estimator_finds_the_same(self, name: str) -> None:
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
        """Two routes to one number: the loss of one text, and the estimator less the read-out."""
        model, tokens = awake(DUO), TOKENS[:1]
        batch = tokens.expand(64, -1)  # the strata belong to places of the batch
        objective = DuoObjective(model, DuoOptions(curriculum=0.0))
        with torch.no_grad():
            losses = torch.stack([mean(objective, batch, seed) for seed in range(60)])
            t = torch.full((2000,), LEAST_TIME)
            many = tokens.expand(2000, -1)
            noisy = model.kernel.corrupt(many, 1 - t, generator=stream(3))
            last = readout_nats(model.kernel, noisy, many, model.at_time(noisy, t), 1 - t).mean(1)
        bound = UniformBound(32, 64)(model, tokens, generator=stream(0))
        wanted = float(bound.nats.mean()) / LENGTH - float(last.mean())
        errors = (losses.std() / 60**0.5, bound.mean_stderr / LENGTH, last.std() / 2000**0.5)
        error = sum(float(e) ** 2 for e in errors) ** 0.5
        assert abs(float(losses.mean()) - wanted) < 4 * error
        assert error < 0.05 * wanted

    def test_masks_and_senseless_times_are_refused(self) -> None:
        network = ExactTimed(enumerated(oracle.two_bit()), "absorbing")
        with pytest.raises(ValueError, match="of uniform noise; the network's noise is absorbing"):
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
    def test_a_sure_mixture_is_a_token(self) -> None:
        model, t = awake(DUO), torch.linspace(0.1, 0.9, 8)
        assert isinstance(model, Timed)
        sure = torch.nn.functional.one_hot(TOKENS[:8], 5).float()
        assert_near(model.at_mixture(sure, t), model.at_time(TOKENS[:8], t))
        unsure = 0.5 * sure + 0.1
        assert (model.at_mixture(unsure, t) - model.at_time(TOKENS[:8], t)).abs().max() > 0.01

    def test_masks_have_none(self) -> None:
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

    def test_cold_it_is_the_bound_in_expectation(self) -> None:
        """As τ → 0 the network sees x_t, whose law is the same; so is the expected loss."""
        model, batch = awake(DUO), TOKENS[:1].expand(64, -1)
        plain, cold = (
            torch.stack([mean(DuoObjective(model, options), batch, s) for s in range(60)])
            for options in (DuoOptions(curriculum=0.0), DuoOptions(1.0, temperature=1e-6))
        )
        error = float((plain.var() + cold.var()) / 60) ** 0.5
        assert abs(float(plain.mean() - cold.mean())) < 4 * error
        assert error < 0.1 * float(plain.mean())

    def test_the_network_sees_the_latent_whose_argmax_is_charged(self) -> None:
        """Nothing else is left to chance: with a given latent the loss can be computed by hand."""
        model, streams = awake(DUO), Streams.derive(7, range(64))
        found = mean(DuoObjective(model, DuoOptions(1.0, temperature=0.5)), TOKENS, 7)
        u = torch.stack([torch.rand((), generator=g) for g in streams.generators])
        t = LEAST_TIME + (1 - LEAST_TIME) * (u + torch.arange(64)) / 64
        w = latents(TOKENS, 1 - t, 5, generator=streams)
        logits = model.at_mixture((2 * w).softmax(-1), t)
        wanted = jump_nats(w.argmax(-1), TOKENS, logits, 1 - t, -torch.ones(64)).mean()
        assert_near(found, (1 - LEAST_TIME) * wanted.detach())

    def test_it_learns_a_text_by_both_halves(self) -> None:
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
