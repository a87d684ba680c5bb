"""SEDD's network, objective and levels, for both kinds of noise."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from dsl.apps.zoo.kernel import Kernel, Noise
from dsl.apps.zoo.protocols import Scored
from dsl.apps.zoo.sedd import (
    LEAST_TIME,
    AtScoreTime,
    Floored,
    ScoreEntropy,
    SeddModel,
    SeddObjective,
    corrupted,
    leave_one_out,
    path_losses,
    prior_nats,
)
from dsl.core import oracle
from dsl.core.alpha import Cosine, Linear
from dsl.core.streams import Streams, stream
from dsl.core.types import MASK
from dsl.families.registry import FAMILIES
from tests.conftest import assert_near
from tests.exact_times import ExactScored, ExactTimed, enumerated
from tests.families.conftest import TOKENS, awake, untrained

SEDD = FAMILIES["sedd"]
noises = pytest.mark.parametrize("noise", ["absorbing", "uniform"])


class TestObjective:
    @noises
    def test_it_is_the_bound_but_for_the_first_thousandth(self, noise: Noise) -> None:
        network, tokens = awake(SEDD, noise=noise), TOKENS[:1]
        with torch.no_grad():  # ratios less wild, or the error would hide everything
            network.backbone.output_layer.linear.weight.mul_(0.3)
            network.backbone.output_layer.linear.bias.mul_(0.3)
        batch, runs = tokens.expand(64, -1), 60  # the strata belong to places of the batch
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
        bound = ScoreEntropy(replicates=128, draws=64)(network, tokens, generator=stream(0))
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
    def test_it_teaches(self, noise: Noise) -> None:
        """Thirty steps on one text, and it is more likely than at first."""
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
    def test_untrained_it_knows_nothing(self, noise: Noise) -> None:
        """Of masks α/(1 - α) is shared by all tokens; under uniform noise all texts are alike."""
        network = untrained(SEDD, noise=noise)
        assert isinstance(network, Scored)
        t = torch.tensor([0.25, 1.0])
        tokens = torch.full((2, 6), MASK if noise == "absorbing" else 3)
        sums = network.log_score(tokens, t).exp().sum(dim=-1)
        alpha = network.alpha(t)
        wanted = alpha / (1 - alpha) if noise == "absorbing" else torch.full((2,), 5.0)
        assert_near(sums, wanted.unsqueeze(1).expand(2, 6))

    @noises
    def test_a_token_is_as_likely_as_itself(self, noise: Noise) -> None:
        network = awake(SEDD, noise=noise)
        log_score = network.log_score(TOKENS, torch.full((64,), 0.5))
        assert (log_score.gather(-1, TOKENS.unsqueeze(-1)) == 0).all()
        assert (log_score != 0).float().mean() > 0.79

    def test_it_hears_the_time(self) -> None:
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

    def test_llama_blocks_are_left_aside(self) -> None:
        assert SEDD.shape(7, 6, {"llama": {"kv_heads": 1, "mlp_dim": 8}}).llama is None


class TestLevels:
    @noises
    def test_of_exact_ratios_they_ask_for_the_exact_posterior(self, noise: Noise) -> None:
        """The clean token as the others tell it, which another double computes directly."""
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


def test_the_model_is_kept_with_its_noise(tmp_path: Any) -> None:
    network = awake(SEDD, noise="uniform")
    SEDD.write(network, tmp_path)
    again = SEDD.read(tmp_path)
    assert isinstance(again, SeddModel) and again.kernel == Kernel("uniform", 5)
