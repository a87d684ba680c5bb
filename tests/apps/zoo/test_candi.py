"""CANDI: with exact posteriors of clean and noisy tokens, sampler and bound are exact."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from scipy.stats import chi2_contingency
from torch import Tensor

from dsl.apps.zoo.candi import CandiObjective, CandiOptions, Mixed, MixedBound, Rank, mixture
from dsl.core import oracle
from dsl.core.denoiser import Endpoints
from dsl.core.streams import Streams, stream
from dsl.core.types import MASK
from dsl.families.registry import FAMILIES
from dsl.likelihoods.roar import Roar
from dsl.samplers.base import last
from dsl.samplers.registry import sampler
from dsl.samplers.state import State
from tests.apps.zoo.test_timed import p_value
from tests.conftest import assert_near
from tests.doubles import Double
from tests.exact_times import enumerated
from tests.families.conftest import SIZES, TOKENS, VOCABULARY, awake, untrained

CANDI = FAMILIES["candi"]
DRAWS = 3_000


class Exact(Double):
    """An oracle's posterior given clean and noisy tokens; it ignores the time."""

    def __init__(self, truth: oracle.Oracle, *, noisy: bool = True) -> None:
        self.truth, self.codebook = truth, truth.codebook
        self.rank = Rank(len(truth.codebook))
        self.noisy = noisy
        self.told: list[tuple[Endpoints, Tensor]] = []

    def snr_at(self, t: Tensor) -> Tensor:
        return self.noisy * self.rank(t)

    def snr_slope(self, t: Tensor) -> Tensor:
        return self.noisy * self.rank.slope(t)

    def at_mixture(self, z: Endpoints, t: Tensor) -> Tensor:
        self.told.append((z, t))
        return self.truth(z)

    def __call__(self, z: Endpoints, /, *, at: Tensor | None = None) -> Tensor:
        """Act as a masked network, for comparison."""
        return self.truth(z, at=at)


def walked(name: str, network: Any, length: int = 3, seed: int = 1) -> Tensor:
    return last(sampler(name), network, State.blank(DRAWS, length), generator=stream(seed)).tokens


class TestSchedule:
    @pytest.mark.parametrize("v", [2, 27])
    def test_a_wrong_token_outranks_the_right_one_with_probability_r(self, v: int) -> None:
        rank, truth = Rank(v, 0.05, 0.4), oracle.markov(v, 1)
        n = 20_000
        for t, wanted in [(0.0, 0.05), (0.5, 0.225), (1.0, 0.4)]:
            gamma = float(rank(torch.tensor(t)))
            x = truth.codebook
            z = gamma * x[0] + gamma**0.5 * torch.randn(n, v - 1, dtype=x.dtype)
            scores = z @ x.T
            wrong = float((scores[:, 1] > scores[:, 0]).double().mean())
            assert abs(wrong - wanted) < 4 * (wanted / n) ** 0.5

    def test_its_slope_is_its_negative_derivative(self) -> None:
        t = torch.linspace(0, 1, 21, dtype=torch.float64, requires_grad=True)
        rank = Rank(9)
        (slope,) = torch.autograd.grad(rank(t).sum(), t)
        assert_near(rank.slope(t), slope)
        assert (slope < 0).all()

    def test_the_published_ranks_give_the_published_noise(self) -> None:
        """σ = 1/√γ on one-hot vectors runs from 0.304 to 1.048."""
        sigma = Rank(10**6, 0.01, 0.25)(torch.tensor([0.0, 1.0])).rsqrt()
        assert sigma.tolist() == pytest.approx([0.304, 1.048], abs=1e-3)

    @pytest.mark.parametrize("ranks", [(0.0, 0.4), (0.3, 0.2), (0.1, 0.5)])
    def test_invalid_ranks_are_refused(self, ranks: tuple[float, float]) -> None:
        with pytest.raises(ValueError, match=r"0 < rank_min < rank_max < 0.5"):
            CANDI.shape(5, 6, SIZES | dict(zip(("rank_min", "rank_max"), ranks, strict=True)))


class TestBound:
    def test_for_an_exact_network_it_is_the_truth(self, truth: oracle.Oracle) -> None:
        """Up to γ(1)/2 per token, the most that the start from pure noise can cost."""
        tokens = truth.sample(6, generator=stream(1))
        network = Exact(truth)
        found = MixedBound(replicates=16, draws=64)(network, tokens, generator=stream(2))
        gap = float((found.nats + truth.log_prob(tokens)).mean())
        prior = 0.5 * tokens.shape[1] * float(network.snr_at(torch.ones(())))
        assert -4 * found.mean_stderr < gap < 4 * found.mean_stderr + prior
        assert found.mean_stderr < 0.1

    def test_a_start_that_is_not_pure_noise_costs_its_divergence(self) -> None:
        """At the published ranks: KL(q(z_1) ‖ N(0, γ)), along the one direction of 00 and 11."""
        truth = oracle.two_bit()
        network = Exact(truth)
        network.rank = Rank(2, 0.01, 0.25)
        found = MixedBound(replicates=64, draws=64)(network, truth.sequences, generator=stream(2))
        mean = (2 * float(network.rank(torch.ones(())))) ** 0.5
        y = torch.linspace(-9, 9, 4001, dtype=torch.float64)
        q = (-(y - mean).square() / 2).exp() + (-(y + mean).square() / 2).exp()
        gap = q.log() - math.log(2) + y.square() / 2
        wanted = math.log(2) + float((q * gap).sum() / q.sum())
        assert wanted > math.log(2) + 0.05
        assert abs(float(found.nats.mean()) - wanted) < 4 * found.mean_stderr
        assert found.mean_stderr < 0.02

    def test_the_reveals_alone_are_below_the_truth(self) -> None:
        """Information from the noise is paid for by the Gaussian steps, not by the reveals."""
        truth = oracle.markov(4, 6)
        tokens = truth.sample(6, generator=stream(1))
        reveals, steps = MixedBound(replicates=16, draws=64).terms(
            Exact(truth), tokens, generator=stream(2)
        )
        exact = -float(truth.log_prob(tokens).mean())
        assert float(reveals.nats.mean()) < 0.8 * exact
        assert float(steps.nats.mean()) > 0.2 * exact

    def test_a_wrong_network_costs_more(self) -> None:
        truth, other = oracle.markov(4, 6), oracle.markov(4, 6, seed=1)
        tokens = truth.sample(20, generator=stream(1))
        found = MixedBound()(Exact(other), tokens, generator=stream(2))
        assert float(found.nats.mean()) > 1.2 * -float(truth.log_prob(tokens).mean())

    @pytest.mark.parametrize("draws", [3, 16])
    def test_without_noise_it_equals_roar(self, draws: int) -> None:
        chain = oracle.markov(4, 6)
        tokens = chain.sample(5, generator=stream(1))
        veiled = MixedBound(4, draws)(Exact(chain, noisy=False), tokens, generator=stream(2))
        masked = Roar(4, draws)(chain, tokens, generator=stream(2))
        assert_near(veiled.values, masked.values)

    def test_the_bound_of_an_untrained_network(self) -> None:
        """Each token costs log v, and ½ (∫ γ dt - γ(1)) + ½ γ(1): x̂ = 0 errs by ‖x‖² = 1."""
        network = untrained(CANDI)
        found = MixedBound(replicates=16, draws=60)(network, TOKENS[:8], generator=stream(0))
        t = (torch.arange(10_000, dtype=torch.float64) + 0.5) / 10_000
        wanted = math.log(VOCABULARY) + 0.5 * float(network.snr_at(t).mean())
        assert abs(float(found.nats.mean()) / 6 - wanted) < 4 * found.mean_stderr / 6


class TestSampler:
    def test_many_steps_of_the_exact_network_draw_from_the_truth(self) -> None:
        """A step treats positions as independent, so the error falls as 1/T."""
        chain = oracle.markov(3, 3, sharpness=0.8)
        assert p_value(enumerated(chain), walked("candi@100", Exact(chain))) > 1e-4

    def test_a_wrong_network_is_noticed(self) -> None:
        truth = enumerated(oracle.markov(3, 3, sharpness=0.8))
        other = Exact(oracle.markov(3, 3, seed=1, sharpness=0.8))
        assert p_value(truth, walked("candi@10", other)) < 1e-9

    def test_wrong_evidence_is_noticed(self) -> None:
        """Doubled evidence draws from another distribution."""
        chain = oracle.markov(3, 3, sharpness=0.8)

        class Doubled(Exact):
            def at_mixture(self, z: Endpoints, t: Tensor) -> Tensor:
                assert z.e is not None
                return self.truth(Endpoints(z.tokens, 2 * z.e))

        assert p_value(enumerated(chain), walked("candi@30", Doubled(chain))) < 1e-9

    @pytest.mark.parametrize("steps", [1, 3])
    def test_one_token_is_exact_in_any_number_of_steps(self, steps: int) -> None:
        truth = enumerated(oracle.markov(4, 1))
        assert p_value(truth, walked(f"candi@{steps}", Exact(truth), 1)) > 1e-4

    def test_without_noise_it_draws_as_mdlm(self) -> None:
        """Two steps of both have the same law, which differs from that of eight."""
        truth = enumerated(oracle.markov(3, 3, sharpness=1.5))
        network = Exact(truth, noisy=False)
        veiled = walked("candi@2", network)
        assert same_law(veiled, walked("mdlm@2", network, seed=2)) > 1e-4
        assert same_law(veiled, walked("mdlm@8", network, seed=2)) < 1e-9
        assert all(z.e is not None and not z.e.any() for z, _ in network.told)

    def test_its_states_have_their_snr(self) -> None:
        """Hidden tokens have γ(t), visible ones the largest SNR."""
        network = Exact(oracle.markov(3, 3))
        for state in sampler("candi@4").steps(network, State.blank(50, 3), generator=stream(0)):
            t = torch.tensor(1 - state.step / 4, dtype=torch.float64)
            wanted = torch.where(state.masked, network.snr_at(t).double(), 100.0)
            torch.testing.assert_close(state.levels(100.0), wanted)

    def test_states_have_the_variance_of_their_time_and_are_zero_at_tokens(self) -> None:
        network = Exact(oracle.markov(3, 3))
        start = torch.full((4000, 3), MASK)
        start[:, 0] = 1
        end = last(sampler("candi@4"), network, State.start(start), generator=stream(0))
        assert end.z is None and (end.tokens[:, 0] == 1).all()
        assert [float(t[0]) for _, t in network.told] == pytest.approx([1.0, 0.75, 0.5, 0.25])
        for z, t in network.told:
            assert z.e is not None
            hidden = z.tokens == MASK
            assert not z.e[~hidden].any() and not hidden[:, 0].any()
            gamma = float(network.snr_at(t[0]))
            # E‖z‖² of a hidden token is γ² + γ d
            wanted = gamma**2 + 2 * gamma
            assert float(z.e[hidden].square().sum(-1).mean()) == pytest.approx(wanted, rel=0.1)


def same_law(one: Tensor, two: Tensor) -> float:
    """Compare the counts of all sequences in two samples."""
    codes = 3 ** torch.arange(one.shape[1])
    counts = torch.stack([(rows * codes).sum(1).bincount(minlength=27) for rows in (one, two)])
    return float(chi2_contingency(counts[:, counts.sum(0) > 20].numpy()).pvalue)


class TestObjective:
    def test_its_expectation_equals_the_estimator(self) -> None:
        """Two routes to both terms without the constant; the loss has times above 1e-3."""
        network, text = awake(CANDI), TOKENS[:1]
        made, batch = CandiObjective(network, CandiOptions()), text.expand(64, -1)
        with torch.no_grad():
            losses = [
                made(batch, Streams.derive(seed, range(64)), range(64), 64) for seed in range(40)
            ]
        reveals, steps = MixedBound(64, 60).terms(network, text, generator=stream(0))
        whole = torch.stack([loss.parts["all"][0] / loss.parts["all"][1] for loss in losses])
        alone = torch.stack([loss.mean for loss in losses])
        both = reveals.values + steps.values
        for draws, values in ((alone, reveals.values), (whole, both)):
            totals = values.sum(dim=-1).flatten() / text.shape[1]
            error = math.hypot(float(draws.std()) / 40**0.5, float(totals.std()) / 8)
            wanted = float(totals.mean())
            assert abs(float(draws.mean()) - wanted) < 4 * error + 2e-3 * wanted

    def test_the_bound_is_logged_for_every_loss(self) -> None:
        network = awake(CANDI)
        plain, whole = (
            CandiObjective(network, CandiOptions(kind))(
                TOKENS, Streams.derive(0, range(64)), range(64), 64
            )
            for kind in ("reveals", "bound")
        )
        total, count = plain.parts["all"]
        assert float(whole.mean.detach()) == pytest.approx(float(total / count), rel=1e-5)
        assert float(plain.mean.detach()) < 0.9 * float(whole.mean.detach())


class TestNetwork:
    def test_it_depends_on_the_noise_of_hidden_tokens_and_on_the_time(self) -> None:
        network = awake(CANDI)
        assert isinstance(network, Mixed)
        hidden = torch.rand(TOKENS.shape, generator=stream(3)) < 0.5
        times = torch.full((64,), 0.4)
        state = mixture(network, TOKENS, hidden, times, stream(0))
        assert state.e is not None and not state.e[~hidden].any() and state.e[hidden].all()
        with torch.no_grad():
            found = network.at_mixture(state, times)
            shown = Endpoints(state.tokens, state.e + (~hidden).unsqueeze(-1))
            assert_near(network.at_mixture(shown, times), found)
            heard = Endpoints(state.tokens, -state.e)
            assert (network.at_mixture(heard, times) - found).abs().max() > 0.01
            assert (network.at_mixture(state, times + 0.3) - found).abs().max() > 0.01

    def test_its_input_has_unit_variance_at_every_time(self) -> None:
        network = untrained(CANDI, codebook="simplex")
        seen: list[Tensor] = []
        network.project.register_forward_hook(lambda _, given, __: seen.append(given[0]))
        text = TOKENS.repeat(20, 1)
        for t in (0.0, 0.5, 1.0):
            times = torch.full((len(text),), t)
            state = mixture(network, text, torch.ones_like(text).bool(), times, stream(0))
            network.at_mixture(state, times)
            assert float(seen[-1].detach().square().mean()) == pytest.approx(1.0, abs=0.03)

    def test_it_has_one_more_layer_than_the_masked_network(self) -> None:
        counts = [
            sum(parameter.numel() for parameter in untrained(family).parameters())
            for family in (CANDI, FAMILIES["mdlm"])
        ]
        assert counts[0] - counts[1] == 4 * SIZES["hidden_dim"]

    def test_a_small_codebook_is_a_simplex(self) -> None:
        assert_near(
            untrained(CANDI).codebook @ untrained(CANDI).codebook.T,
            torch.eye(5) * 1.25 - 0.25,
        )
