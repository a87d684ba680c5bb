"""Score entropy of exact ratios is the truth, and of a posterior masked diffusion's bound."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from dsl.apps.zoo.kernel import Kernel, Noise
from dsl.apps.zoo.sedd import Floored, ScoreEntropy, corrupted, prior_nats, score_entropy
from dsl.core import oracle
from dsl.core.alpha import Cosine, Linear, Schedule
from dsl.core.denoiser import Endpoints
from dsl.core.streams import Streams, stream
from dsl.core.types import MASK
from dsl.families.mdlm import MdlmModel, MdlmShape
from dsl.families.registry import FAMILIES
from dsl.likelihoods.roar import Enumerated
from tests.conftest import assert_near
from tests.doubles import Double
from tests.exact_times import ExactScored, enumerated
from tests.families.conftest import TOKENS, awake, stirred

SEDD = FAMILIES["sedd"]
noises = pytest.mark.parametrize("noise", ["absorbing", "uniform"])


class FromPosterior(Double):
    """Ratios α/(1 - α) p of any denoiser of masks, all of them too large by a factor."""

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
    def test_of_exact_ratios_it_is_the_truth(self, truth: oracle.Oracle, noise: Noise) -> None:
        tokens = truth.sample(24, generator=stream(1))
        network = ExactScored(enumerated(truth), noise, Floored(Linear()))
        found = ScoreEntropy(replicates=16, draws=32)(network, tokens, generator=stream(2))
        exact = -truth.log_prob(tokens)
        assert found.mean_stderr < 0.03 * float(exact.mean())
        assert abs(float((found.nats - exact).mean())) < 4 * found.mean_stderr

    @noises
    def test_a_wrong_network_is_noticed(self, noise: Noise) -> None:
        """By about the divergence of what it knows from what is so."""
        truth, other = (oracle.markov(4, 3, seed=seed) for seed in (0, 1))
        tokens = truth.sample(64, generator=stream(1))
        network = ExactScored(enumerated(other), noise, Floored(Linear()))
        found = ScoreEntropy(replicates=8, draws=8)(network, tokens, generator=stream(2))
        wrong = float((found.nats + other.log_prob(tokens)).mean())
        assert abs(wrong) < 4 * found.mean_stderr + 1e-3, "it is the truth of the other"
        assert float((found.nats + truth.log_prob(tokens)).mean()) > 0.2 + 4 * found.mean_stderr

    @pytest.mark.parametrize("alpha", [Floored(Linear(), 0.3), Floored(Cosine()), Linear()])
    def test_of_a_posterior_it_is_the_bound_of_masked_diffusion(self, alpha: Schedule) -> None:
        """Whatever the posterior, the schedule and its floor: ROAR's number by another route."""
        shape = MdlmShape(5, hidden_dim=16, cond_dim=4, n_blocks=2, n_heads=2, dropout=0.0)
        denoiser, tokens = stirred(MdlmModel(shape)), TOKENS[:8]
        wanted = Enumerated()(denoiser, tokens)
        bound = ScoreEntropy(replicates=16, draws=32)
        found = bound(FromPosterior(denoiser, alpha), tokens, generator=stream(0))
        assert abs(float((found.nats - wanted.nats).mean())) < 4 * found.mean_stderr
        assert found.mean_stderr < 0.03 * float(wanted.nats.mean())

    @pytest.mark.parametrize("factor", [0.25, 3.0])
    def test_ratios_that_do_not_add_up_cost_c_minus_1_minus_log_c(self, factor: float) -> None:
        """A masked diffusion cannot err so: the factor is the rate at which tokens appear."""
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

    def test_a_process_that_stops_early_pays_for_its_prior(self) -> None:
        """Of one token under uniform noise: E log q_1/π more than the truth, or less."""
        truth, alpha, v = oracle.markov(4, 1), 0.8, 4
        tokens = torch.arange(v).unsqueeze(1)
        network = ExactScored(enumerated(truth), "uniform", Floored(Linear(), alpha))
        found = ScoreEntropy(replicates=64, draws=128)(network, tokens, generator=stream(0))
        p = truth.log_prob(tokens).exp()
        last = alpha * torch.eye(v, dtype=p.dtype) + (1 - alpha) / v
        extra = last @ (v * (alpha * p + (1 - alpha) / v)).log()
        assert ((found.nats + p.log() - extra).abs() < 4 * found.stderr).all()
        assert (found.stderr < 0.2 * prior_nats(network.kernel, alpha)).all(), "it would be missed"

    def test_masks_cover_everything_at_the_end(self) -> None:
        """Even where the schedule leaves half of the tokens alone for ever."""
        network = FromPosterior(oracle.markov(5, 6), Floored(Linear(), 0.5))
        assert (corrupted(network, TOKENS, torch.ones(64), generator=stream(0)) == MASK).all()
        none = corrupted(network, TOKENS, torch.zeros(64), generator=stream(0))
        assert torch.equal(none, TOKENS)

    @noises
    def test_a_text_scores_the_same_in_any_batch(self, noise: Noise) -> None:
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

    def test_it_vanishes_where_the_ratios_are_those_of_the_clean_token(self) -> None:
        kernel, alpha = Kernel("uniform", 5), torch.tensor([0.4], dtype=torch.float64)
        clean, noisy = torch.tensor([[1, 2]]), torch.tensor([[1, 4]])
        log_q = kernel.log_likelihood(clean, alpha)
        right = log_q - log_q.gather(-1, noisy.unsqueeze(-1))
        assert float(score_entropy(right, noisy, clean, kernel, alpha).abs().max()) < 1e-12
        wrong = right + torch.tensor([0, 0, 0, 0.1, 0])
        assert (score_entropy(wrong, noisy, clean, kernel, alpha) > 1e-5).all()
