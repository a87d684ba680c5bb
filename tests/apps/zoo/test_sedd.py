"""SEDD for both kinds of noise: network, objective, bound against the truth, samplers by χ²."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from dsl.apps.zoo.kernel import Kernel, Noise
from dsl.apps.zoo.sedd import (
    LEAST_TIME,
    AtScoreTime,
    Floored,
    Scored,
    ScoreEntropy,
    SeddModel,
    SeddObjective,
    corrupted,
    euler,
    leave_one_out,
    path_losses,
    prior_nats,
    score_entropy,
    sharpened,
    tweedie,
)
from dsl.core import oracle
from dsl.core.alpha import Cosine, Linear, Schedule
from dsl.core.denoiser import Endpoints
from dsl.core.streams import Streams, stream
from dsl.core.types import MASK
from dsl.families.mdlm import MdlmModel, MdlmShape
from dsl.families.registry import FAMILIES
from dsl.likelihoods.roar import Enumerated
from dsl.samplers.base import last
from dsl.samplers.draw import Draw
from dsl.samplers.registry import sampler
from dsl.samplers.state import State
from tests.apps.zoo.test_timed import p_value
from tests.conftest import assert_near
from tests.doubles import Double
from tests.exact_times import ExactScored, ExactTimed, enumerated
from tests.families.conftest import TOKENS, awake, stirred, untrained

SEDD = FAMILIES["sedd"]
noises = pytest.mark.parametrize("noise", ["absorbing", "uniform"])


class TestObjective:
    @noises
    def test_it_is_the_bound_above_the_least_time(self, noise: Noise) -> None:
        network, tokens = awake(SEDD, noise=noise), TOKENS[:1]
        with torch.no_grad():  # smaller ratios, else the error would be too large
            network.backbone.output_layer.linear.weight.mul_(0.3)
            network.backbone.output_layer.linear.bias.mul_(0.3)
        batch, runs = tokens.expand(64, -1), 40  # the strata belong to places of the batch
        objective = SeddObjective(network)
        with torch.no_grad():
            draws = torch.stack([
                objective(batch, Streams.derive(s, range(64)), range(64), 64).mean
                for s in range(runs)
            ]).double()  # fmt: skip
            t = LEAST_TIME * torch.rand(4096, generator=stream(1), dtype=torch.float64)
            many = tokens.expand(4096, -1)
            noisy = corrupted(network, many, t, generator=stream(2))
            first = LEAST_TIME * path_losses(network, noisy, many, t).mean(dim=1)
        bound = ScoreEntropy(replicates=96, draws=64)(network, tokens, generator=stream(0))
        prior = prior_nats(network.kernel, 1e-3)
        wanted = float(bound.nats) / 6 - prior - float(first.mean())
        errors = [(1 - LEAST_TIME) * float(draws.std()) / runs**0.5, bound.mean_stderr / 6,
                  float(first.std()) / 64]  # fmt: skip
        error = math.hypot(*errors)
        assert error < 0.05 * wanted
        assert abs((1 - LEAST_TIME) * float(draws.mean()) - wanted) < 4 * error

    @pytest.mark.parametrize("places", [range(8), range(4, 8)])
    def test_every_place_of_the_batch_has_its_own_stratum(self, places: range) -> None:
        told: list[Tensor] = []
        network = untrained(SEDD)
        network.log_score = lambda tokens, t: told.append(t) or torch.zeros(*tokens.shape, 5)
        for seed in range(5):
            rows = TOKENS[: len(places)]
            SeddObjective(network)(rows, Streams.derive(seed, places), places, 8)
            inside = (told[-1] - LEAST_TIME) / (1 - LEAST_TIME) * 8 - torch.tensor(list(places))
            assert (inside > -1e-4).all() and (inside < 1 + 1e-4).all()

    @noises
    def test_it_learns_a_text(self, noise: Noise) -> None:
        """Thirty steps on one text make it more likely."""
        network, tokens = untrained(SEDD, noise=noise), TOKENS[:1]
        objective = SeddObjective(network)
        bound = ScoreEntropy(replicates=8, draws=16)
        optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
        before = float(bound(network, tokens, generator=stream(0)).nats)
        for step in range(30):
            optimizer.zero_grad()
            batch = tokens.expand(32, -1)
            objective(batch, Streams.derive(step, range(32)), range(32), 32).mean.backward()
            optimizer.step()
        after = float(bound(network, tokens, generator=stream(0)).nats)
        assert before == pytest.approx(6 * math.log(5), rel=0.3)
        assert after < 0.7 * before


class TestNetwork:
    @noises
    def test_untrained_it_is_uniform(self, noise: Noise) -> None:
        """The ratios of a mask sum to α/(1 - α); under uniform noise all ratios are 1."""
        network = untrained(SEDD, noise=noise)
        assert isinstance(network, Scored)
        t = torch.tensor([0.25, 1.0])
        tokens = torch.full((2, 6), MASK if noise == "absorbing" else 3)
        sums = network.log_score(tokens, t).exp().sum(dim=-1)
        alpha = network.alpha(t)
        wanted = alpha / (1 - alpha) if noise == "absorbing" else torch.full((2,), 5.0)
        assert_near(sums, wanted.unsqueeze(1).expand(2, 6))

    @noises
    def test_the_ratio_of_a_token_to_itself_is_one(self, noise: Noise) -> None:
        network = awake(SEDD, noise=noise)
        log_score = network.log_score(TOKENS, torch.full((64,), 0.5))
        assert (log_score.gather(-1, TOKENS.unsqueeze(-1)) == 0).all()
        assert (log_score != 0).float().mean() > 0.79

    def test_it_depends_on_the_time(self) -> None:
        network = awake(SEDD, noise="uniform")
        one, two = (network.log_score(TOKENS[:1], torch.tensor([t])) for t in (0.3, 0.31))
        assert (one - two).abs().max() > 1e-3

    def test_the_schedule_is_log_linear_with_a_floor(self) -> None:
        alpha = untrained(SEDD).alpha
        t = torch.linspace(0, 1, 5, dtype=torch.float64, requires_grad=True)
        assert_near(alpha(t), 1 - (1 - 1e-3) * t)
        for inner in (Linear(), Cosine()):
            (slope,) = torch.autograd.grad(Floored(inner)(t).sum(), t)
            assert_near(Floored(inner).slope(t), slope)

    def test_llama_options_are_ignored(self) -> None:
        assert SEDD.shape(7, 6, {"llama": {"kv_heads": 1, "mlp_dim": 8}}).llama is None


class TestLevels:
    @noises
    def test_with_exact_ratios_they_return_the_exact_posterior(self, noise: Noise) -> None:
        """The clean token given the others, which another double computes directly."""
        truth, alpha = enumerated(oracle.markov(4, 3)), Floored(Linear())
        tokens = oracle.markov(4, 3).sample(32, generator=stream(0))
        streams = [Streams.derive(0, range(32)) for _ in range(2)]
        level = AtScoreTime(0.5)
        logits, at = level.ask(ExactScored(truth, noise, alpha), tokens, generator=streams[0])
        times = torch.full((32,), 0.5)
        noisy = Kernel(noise, 4).corrupt(tokens, alpha(times), generator=streams[1])
        wanted = ExactTimed(truth, noise, alpha).at_time(noisy, times)[at]
        assert_near(logits.softmax(-1), wanted.softmax(-1))
        assert bool(at.all()) is (noise == "uniform") and level.label == "t=0.5"

    @noises
    def test_untrained_they_are_uniform(self, noise: Noise) -> None:
        network = untrained(SEDD, noise=noise)
        for level in SEDD.levels(network):
            logits, _ = level.ask(network, TOKENS, generator=Streams.derive(0, range(64)))
            assert_near(logits.softmax(-1), torch.full_like(logits, 0.2))

    def test_ratios_below_the_noise_are_a_small_probability(self) -> None:
        found = leave_one_out(torch.tensor([[[0.0, -30.0, 5.0]]]), torch.tensor([0.5])).exp()
        assert found[0, 0, :2].tolist() == pytest.approx([1e-6, 1e-6])
        assert float(found[0, 0, 2]) > 1


def test_the_noise_is_saved_with_the_model(tmp_path: Any) -> None:
    network = awake(SEDD, noise="uniform")
    SEDD.write(network, tmp_path)
    again = SEDD.read(tmp_path)
    assert isinstance(again, SeddModel) and again.kernel == Kernel("uniform", 5)


SEDD = FAMILIES["sedd"]
noises = pytest.mark.parametrize("noise", ["absorbing", "uniform"])


class FromPosterior(Double):
    """Ratios α/(1 - α) p of a masked denoiser, times a factor."""

    def __init__(self, denoiser: Any, alpha: Schedule, factor: float = 1.0) -> None:
        self.denoiser, self.alpha, self.factor = denoiser, alpha, factor
        self.kernel = Kernel("absorbing", denoiser.vocab_size)
        self.codebook = torch.eye(denoiser.vocab_size)

    def log_score(self, tokens: Tensor, t: Tensor) -> Tensor:
        alpha = self.alpha(t).view(-1, 1, 1)
        p = self.denoiser(Endpoints(tokens)).double().log_softmax(-1)
        return p + (self.factor * alpha / (1 - alpha)).log()


class TestBound:
    @noises
    def test_with_exact_ratios_it_is_the_truth(self, truth: oracle.Oracle, noise: Noise) -> None:
        tokens = truth.sample(24, generator=stream(1))
        network = ExactScored(enumerated(truth), noise, Floored(Linear()))
        found = ScoreEntropy(replicates=16, draws=32)(network, tokens, generator=stream(2))
        exact = -truth.log_prob(tokens)
        assert found.mean_stderr < 0.03 * float(exact.mean())
        assert abs(float((found.nats - exact).mean())) < 4 * found.mean_stderr

    @noises
    def test_a_wrong_network_is_noticed(self, noise: Noise) -> None:
        """The excess is about the divergence between the two distributions."""
        truth, other = (oracle.markov(4, 3, seed=seed) for seed in (0, 1))
        tokens = truth.sample(64, generator=stream(1))
        network = ExactScored(enumerated(other), noise, Floored(Linear()))
        found = ScoreEntropy(replicates=8, draws=8)(network, tokens, generator=stream(2))
        wrong = float((found.nats + other.log_prob(tokens)).mean())
        assert abs(wrong) < 4 * found.mean_stderr + 1e-3, (
            "it is the likelihood of the other distribution"
        )
        assert float((found.nats + truth.log_prob(tokens)).mean()) > 0.2 + 4 * found.mean_stderr

    @pytest.mark.parametrize("alpha", [Floored(Linear(), 0.3), Floored(Cosine()), Linear()])
    def test_for_a_posterior_it_is_the_bound_of_masked_diffusion(self, alpha: Schedule) -> None:
        """For any posterior, schedule and floor it equals ROAR."""
        shape = MdlmShape(5, hidden_dim=16, cond_dim=4, n_blocks=2, n_heads=2, dropout=0.0)
        denoiser, tokens = stirred(MdlmModel(shape)), TOKENS[:8]
        wanted = Enumerated()(denoiser, tokens)
        bound = ScoreEntropy(replicates=16, draws=32)
        found = bound(FromPosterior(denoiser, alpha), tokens, generator=stream(0))
        assert abs(float((found.nats - wanted.nats).mean())) < 4 * found.mean_stderr
        assert found.mean_stderr < 0.03 * float(wanted.nats.mean())

    @pytest.mark.parametrize("factor", [0.25, 3.0])
    def test_ratios_times_c_cost_c_minus_1_minus_log_c(self, factor: float) -> None:
        """The factor scales the reveal rate, which a masked diffusion has no error in."""
        denoiser, tokens = oracle.markov(5, 6), TOKENS[:8]
        bound = ScoreEntropy(replicates=16, draws=32)
        pair = [
            bound(FromPosterior(denoiser, Floored(Linear()), c), tokens, generator=stream(0))
            for c in (1.0, factor)
        ]
        extra = (pair[1].values - pair[0].values).sum(dim=-1)
        error = float(extra.std(dim=1).square().mean() / 16 / 8) ** 0.5
        assert abs(float(extra.mean()) / 6 - (factor - 1 - math.log(factor))) < 4 * error / 6

    def test_the_prior_term_is_a_divergence(self) -> None:
        for v, alpha in [(2, 0.3), (27, 1e-3)]:
            q = torch.full((v,), (1 - alpha) / v, dtype=torch.float64)
            q[0] += alpha
            wanted = float((q * (q * v).log()).sum())
            assert prior_nats(Kernel("uniform", v), alpha) == pytest.approx(wanted, rel=1e-9)
        assert prior_nats(Kernel("uniform", 27), 1e-3) < 2e-5
        assert prior_nats(Kernel("absorbing", 27), 1e-3) == 0

    def test_a_process_that_stops_early_has_a_prior_cost(self) -> None:
        """For one token under uniform noise the difference is E log q_1/π."""
        truth, alpha, v = oracle.markov(4, 1), 0.8, 4
        tokens = torch.arange(v).unsqueeze(1)
        network = ExactScored(enumerated(truth), "uniform", Floored(Linear(), alpha))
        found = ScoreEntropy(replicates=64, draws=128)(network, tokens, generator=stream(0))
        p = truth.log_prob(tokens).exp()
        last = alpha * torch.eye(v, dtype=p.dtype) + (1 - alpha) / v
        extra = last @ (v * (alpha * p + (1 - alpha) / v)).log()
        assert ((found.nats + p.log() - extra).abs() < 4 * found.stderr).all()
        assert (found.stderr < 0.2 * prior_nats(network.kernel, alpha)).all(), (
            "small enough to notice it"
        )

    def test_masks_cover_everything_at_the_end(self) -> None:
        """Even if the schedule never changes half of the tokens."""
        network = FromPosterior(oracle.markov(5, 6), Floored(Linear(), 0.5))
        assert (corrupted(network, TOKENS, torch.ones(64), generator=stream(0)) == MASK).all()
        none = corrupted(network, TOKENS, torch.zeros(64), generator=stream(0))
        assert torch.equal(none, TOKENS)

    @noises
    def test_a_score_does_not_depend_on_the_batch(self, noise: Noise) -> None:
        network = awake(SEDD, noise=noise)
        bound = ScoreEntropy(replicates=2, draws=2, batch_size=3)
        whole = bound(network, TOKENS[:4], generator=Streams.derive(0, range(4)))
        alone = bound(network, TOKENS[2:3], generator=Streams.derive(0, [2]))
        assert_near(alone.values[0], whole.values[2], 1e-4)

    def test_nan_is_refused(self) -> None:
        network = awake(SEDD)
        with torch.no_grad():
            network.backbone.output_layer.linear.bias.fill_(torch.nan)
        with pytest.raises(ValueError, match="NaN logits"):
            ScoreEntropy(2, 1)(network, TOKENS[:1], generator=stream(0))


class TestScoreEntropy:
    @noises
    def test_it_is_the_sum_of_the_paper(self, noise: Noise) -> None:
        """Term by term: rate times s - r log s + r (log r - 1) over all other states."""
        v, alpha = 4, torch.tensor([0.2, 0.9], dtype=torch.float64)
        kernel, clean = Kernel(noise, v), torch.tensor([[0, 1, 2], [3, 3, 1]])
        noisy = torch.tensor([[0, 2, MASK], [3, MASK, MASK]])
        if noise == "uniform":
            noisy = noisy.masked_fill(noisy == MASK, 0)
        log_score = torch.randn(2, 3, v, dtype=torch.float64, generator=stream(0))
        for at in (noisy != MASK).nonzero().tolist():
            log_score[at[0], at[1], noisy[at[0], at[1]]] = 0
        found = score_entropy(log_score, noisy, clean, kernel, alpha)
        for b, i in [(b, i) for b in range(2) for i in range(3)]:
            x, x0, a = int(noisy[b, i]), int(clean[b, i]), float(alpha[b])
            noise_mass = (1 - a) / v if noise == "uniform" else 0.0
            q = [a * (y == x0) + noise_mass for y in range(v)]
            own = 1 - a if x == MASK else q[x]
            moves = noise == "uniform" or x == MASK
            total = 0.0
            for y in [y for y in range(v) if y != x and moves]:
                s, r = math.exp(log_score[b, i, y]), q[y] / own
                constant = r * (math.log(r) - 1) if r else 0.0
                total += s - r * math.log(s) + constant
            rate = 1 / v if noise == "uniform" else 1.0
            assert float(found[b, i]) == pytest.approx(rate * total, rel=1e-9, abs=1e-12)

    def test_it_vanishes_for_the_ratios_of_the_clean_token(self) -> None:
        kernel, alpha = Kernel("uniform", 5), torch.tensor([0.4], dtype=torch.float64)
        clean, noisy = torch.tensor([[1, 2]]), torch.tensor([[1, 4]])
        log_q = kernel.log_likelihood(clean, alpha)
        right = log_q - log_q.gather(-1, noisy.unsqueeze(-1))
        assert float(score_entropy(right, noisy, clean, kernel, alpha).abs().max()) < 1e-12
        wrong = right + torch.tensor([0, 0, 0, 0.1, 0])
        assert (score_entropy(wrong, noisy, clean, kernel, alpha) > 1e-5).all()


CHAIN = oracle.markov(3, 3, sharpness=0.8)
DRAWS = 2_500
ALPHA = Floored(Linear())
noises = pytest.mark.parametrize("noise", ["absorbing", "uniform"])


@pytest.mark.parametrize("name", ["tweedie@60", "euler@60"])
@noises
def test_many_steps_of_exact_ratios_draw_from_the_truth(noise: Noise, name: str) -> None:
    truth = enumerated(CHAIN)
    network = ExactScored(truth, noise, ALPHA)
    end = last(sampler(name), network, State.blank(DRAWS, 3), generator=stream(1))
    assert p_value(truth, end.tokens) > 1e-4


@pytest.mark.parametrize("name", ["tweedie@20", "euler@20"])
@noises
def test_a_wrong_network_is_noticed(noise: Noise, name: str) -> None:
    other = ExactScored(enumerated(oracle.markov(3, 3, seed=1, sharpness=0.8)), noise, ALPHA)
    end = last(sampler(name), other, State.blank(DRAWS, 3), generator=stream(1))
    assert p_value(enumerated(CHAIN), end.tokens) < 1e-9


@noises
def test_one_token_is_exact_in_a_single_step(noise: Noise) -> None:
    """Tweedie's formula is exact except that it treats positions as independent."""
    truth = enumerated(oracle.markov(4, 1))
    network = ExactScored(truth, noise, ALPHA)
    end = last(sampler("tweedie@1"), network, State.blank(DRAWS, 1), generator=stream(2))
    assert p_value(truth, end.tokens) > 1e-4


@noises
def test_with_exact_ratios_tweedie_is_the_posterior_of_the_kernel(noise: Noise) -> None:
    """Two routes: through the ratios, and through x̂_0."""
    truth, tokens = enumerated(CHAIN), CHAIN.sample(40, generator=stream(0))
    t = torch.full((40,), 0.6, dtype=torch.float64)
    scored = ExactScored(truth, noise, ALPHA)
    noisy = scored.kernel.corrupt(tokens, ALPHA(t), generator=stream(1))
    clean = ExactTimed(truth, noise, ALPHA).at_time(noisy, t).softmax(-1)
    wanted = scored.kernel.posterior(noisy, clean, ALPHA(t), ALPHA(t / 2))
    found = tweedie(scored, noisy, scored.log_score(noisy, t).exp(), 0.6, 0.3)
    at = noisy == MASK if noise == "absorbing" else torch.ones_like(noisy).bool()
    assert_near((found / found.sum(-1, keepdim=True))[at], wanted[at])


def test_with_masks_and_log_linear_noise_euler_is_tweedie() -> None:
    """α is linear in t, so reveal probabilities agree; with another schedule they do not."""
    noisy = torch.full((2, 3), MASK)
    score = torch.rand(2, 3, 3, dtype=torch.float64, generator=stream(0))
    for alpha, same in [(ALPHA, True), (Floored(Cosine()), False)]:
        network = ExactScored(enumerated(CHAIN), "absorbing", alpha)
        pair = [step(network, noisy, score, 0.5, 0.4) for step in (tweedie, euler)]
        assert torch.allclose(*pair) is same


@noises
def test_short_steps_of_tweedie_are_eulers(noise: Noise) -> None:
    """The rates of both agree, even for inconsistent ratios."""
    noisy = torch.tensor([[0, 1, 2]]) if noise == "uniform" else torch.full((1, 3), MASK)
    log_score = torch.randn(1, 3, 3, dtype=torch.float64, generator=stream(0))
    score = sharpened(log_score, noisy, Draw())
    network = ExactScored(enumerated(CHAIN), noise, ALPHA)
    found, wanted = (step(network, noisy, score, 0.5, 0.5 - 1e-6) for step in (tweedie, euler))
    jumped = wanted < 0.5  # with some 1e-6; the others stayed
    assert int(jumped.sum()) == found.numel() - 3
    torch.testing.assert_close(found[jumped], wanted[jumped], rtol=1e-4, atol=0)


@noises
def test_euler_probabilities_sum_to_one(noise: Noise) -> None:
    """The probability to stay is the rest, or 0 if the jumps exceed 1."""
    noisy = torch.tensor([[0, 1, 2]]) if noise == "uniform" else torch.full((1, 3), MASK)
    network = ExactScored(enumerated(CHAIN), noise, ALPHA)
    score = torch.ones(1, 3, 3, dtype=torch.float64)
    stays = noisy.unsqueeze(-1) if noise == "uniform" else torch.full((1, 3, 1), 3)
    few, all_ = (euler(network, noisy, c * score, 0.5, 0.4) for c in (0.1, 100.0))
    assert_near(few.sum(-1), torch.ones(1, 3, dtype=torch.float64))
    assert (few.gather(-1, stays) > 0.8).all() and (all_.gather(-1, stays) == 0).all()


class TestDraw:
    """Temperature and top-p change the target of a jump, not the rate of jumps."""

    NOISY = torch.tensor([[MASK, 1, 3]])
    LOG_SCORE = torch.tensor(
        [[[0, 1, -1, 2], [3, 0, -2, 1], [-1, 0.5, 0.7, 0]]], dtype=torch.float64
    )

    def test_the_default_changes_nothing(self) -> None:
        assert_near(sharpened(self.LOG_SCORE, self.NOISY, Draw()), self.LOG_SCORE.exp())

    @pytest.mark.parametrize("draw", [Draw(temperature=0.0), Draw(top_p=0.5), Draw(top_k=1)])
    def test_sums_are_kept_and_unlikely_tokens_removed(self, draw: Draw) -> None:
        found = sharpened(self.LOG_SCORE, self.NOISY, draw)
        assert_near(found.sum(-1), self.LOG_SCORE.exp().sum(-1))
        assert found[0, 1, 1] == found[0, 2, 3] == 1, "a token's ratio to itself"
        assert (found > 0).sum(-1).tolist() == [[1, 2, 2]]
        assert found[0, 0, 3] > 0 and found[0, 1, 0] > 0 and found[0, 2, 2] > 0

    @noises
    def test_a_low_temperature_finds_likely_texts(self, noise: Noise) -> None:
        truth = enumerated(CHAIN)
        p = {}
        for name in ("tweedie@40", "tweedie@40:temperature=0.3"):
            network = ExactScored(truth, noise, ALPHA)
            end = last(sampler(name), network, State.blank(2000, 3), generator=stream(1))
            p[name] = float(CHAIN.log_prob(end.tokens).mean())
        assert p["tweedie@40:temperature=0.3"] > p["tweedie@40"] + 0.2

    def test_degenerate_scores(self) -> None:
        """A vocabulary of one token, and ratios that are all zero."""
        alone = sharpened(torch.zeros(1, 2, 1).double(), torch.tensor([[0, 0]]), Draw())
        assert alone.tolist() == [[[1.0], [1.0]]]
        never = torch.full((1, 1, 3), -torch.inf, dtype=torch.float64)
        assert sharpened(never, torch.tensor([[MASK]]), Draw()).sum() == 0


@noises
def test_the_network_is_called_at_the_time_of_its_tokens(noise: Noise) -> None:
    """T + 1 calls: the last, at 1e-5, removes the remaining noise."""
    network = ExactScored(enumerated(CHAIN), noise, ALPHA)
    start = torch.full((2, 3), MASK)
    start[1] = torch.tensor([0, 1, 2])
    states = list(sampler("tweedie@4").steps(network, State.start(start), generator=stream(0)))
    assert [state.step for state in states] == [1, 2, 3, 4, 5]
    times = [float(t[0]) for t in network.told]
    grid = [1 - (1 - 1e-5) * k / 4 for k in range(5)]
    assert times == pytest.approx(grid[: len(times)], rel=1e-4)
    assert len(times) == 5 or noise == "absorbing"
    assert states[-1].nfe.tolist() == [len(times), 0]
    assert torch.equal(states[-1].tokens[1], start[1]) and not states[-1].masked.any()


def test_remaining_masks_are_drawn_at_the_end() -> None:
    """With ratios near 0 nothing is revealed until the noise is removed."""
    network = ExactScored(enumerated(CHAIN), "absorbing", ALPHA)
    network.log_score = lambda tokens, t: torch.full((*tokens.shape, 3), -50.0)  # type: ignore
    states = list(sampler("euler@3").steps(network, State.blank(4, 3), generator=stream(0)))
    assert [bool(state.masked.all()) for state in states] == [True, True, True, False]
    assert not states[-1].masked.any() and states[-1].nfe.tolist() == [4] * 4
