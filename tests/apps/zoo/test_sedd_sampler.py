"""The samplers of score ratios against the truth: χ² on 5,000 draws."""

from __future__ import annotations

import pytest
import torch

from dsl.apps.zoo.kernel import Noise
from dsl.apps.zoo.sedd import Floored, euler, sharpened, tweedie
from dsl.core import oracle
from dsl.core.alpha import Cosine, Linear
from dsl.core.streams import stream
from dsl.core.types import MASK
from dsl.samplers.base import last
from dsl.samplers.draw import Draw
from dsl.samplers.registry import sampler
from dsl.samplers.state import State
from tests.apps.zoo.test_timed import p_value
from tests.conftest import assert_near
from tests.exact_times import ExactScored, ExactTimed, enumerated

CHAIN = oracle.markov(3, 3, sharpness=0.8)
DRAWS = 5_000
ALPHA = Floored(Linear())
noises = pytest.mark.parametrize("noise", ["absorbing", "uniform"])


@pytest.mark.parametrize("name", ["tweedie@100", "euler@100"])
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
    """Tweedie's formula errs only by taking positions to be independent; there is but one."""
    truth = enumerated(oracle.markov(4, 1))
    network = ExactScored(truth, noise, ALPHA)
    end = last(sampler("tweedie@1"), network, State.blank(DRAWS, 1), generator=stream(2))
    assert p_value(truth, end.tokens) > 1e-4


@noises
def test_of_exact_ratios_tweedie_is_the_posterior_of_the_kernel(noise: Noise) -> None:
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
    """α is linear in t, so the chance to be revealed is the same; not so for another schedule."""
    noisy = torch.full((2, 3), MASK)
    score = torch.rand(2, 3, 3, dtype=torch.float64, generator=stream(0))
    for alpha, same in [(ALPHA, True), (Floored(Cosine()), False)]:
        network = ExactScored(enumerated(CHAIN), "absorbing", alpha)
        pair = [step(network, noisy, score, 0.5, 0.4) for step in (tweedie, euler)]
        assert torch.allclose(*pair) is same


@noises
def test_short_steps_of_tweedie_are_eulers(noise: Noise) -> None:
    """Whether or not the ratios belong to a distribution: the rates of both are the bound's."""
    noisy = torch.tensor([[0, 1, 2]]) if noise == "uniform" else torch.full((1, 3), MASK)
    log_score = torch.randn(1, 3, 3, dtype=torch.float64, generator=stream(0))
    score = sharpened(log_score, noisy, Draw())
    network = ExactScored(enumerated(CHAIN), noise, ALPHA)
    found, wanted = (step(network, noisy, score, 0.5, 0.5 - 1e-6) for step in (tweedie, euler))
    jumped = wanted < 0.5  # with some 1e-6; the others stayed
    assert int(jumped.sum()) == found.numel() - 3
    torch.testing.assert_close(found[jumped], wanted[jumped], rtol=1e-4, atol=0)


@noises
def test_what_does_not_jump_stays(noise: Noise) -> None:
    """Euler's chances add up to 1; where more than all would jump, all do."""
    noisy = torch.tensor([[0, 1, 2]]) if noise == "uniform" else torch.full((1, 3), MASK)
    network = ExactScored(enumerated(CHAIN), noise, ALPHA)
    score = torch.ones(1, 3, 3, dtype=torch.float64)
    stays = noisy.unsqueeze(-1) if noise == "uniform" else torch.full((1, 3, 1), 3)
    few, all_ = (euler(network, noisy, c * score, 0.5, 0.4) for c in (0.1, 100.0))
    assert_near(few.sum(-1), torch.ones(1, 3, dtype=torch.float64))
    assert (few.gather(-1, stays) > 0.8).all() and (all_.gather(-1, stays) == 0).all()


class TestDraw:
    """Temperature and top-p choose which token a position jumps to, not how often it jumps."""

    NOISY = torch.tensor([[MASK, 1, 3]])
    LOG_SCORE = torch.tensor(
        [[[0, 1, -1, 2], [3, 0, -2, 1], [-1, 0.5, 0.7, 0]]], dtype=torch.float64
    )

    def test_plain_it_changes_nothing(self) -> None:
        assert_near(sharpened(self.LOG_SCORE, self.NOISY, Draw()), self.LOG_SCORE.exp())

    @pytest.mark.parametrize("draw", [Draw(temperature=0.0), Draw(top_p=0.5), Draw(top_k=1)])
    def test_the_sums_stay_and_the_most_likely_remain(self, draw: Draw) -> None:
        found = sharpened(self.LOG_SCORE, self.NOISY, draw)
        assert_near(found.sum(-1), self.LOG_SCORE.exp().sum(-1))
        assert found[0, 1, 1] == found[0, 2, 3] == 1, "a token's ratio to itself"
        assert (found > 0).sum(-1).tolist() == [[1, 2, 2]]
        assert found[0, 0, 3] > 0 and found[0, 1, 0] > 0 and found[0, 2, 2] > 0

    @noises
    def test_cold_the_sampler_finds_a_likely_text(self, noise: Noise) -> None:
        truth = enumerated(CHAIN)
        p = {}
        for name in ("tweedie@40", "tweedie@40:temperature=0.3"):
            network = ExactScored(truth, noise, ALPHA)
            end = last(sampler(name), network, State.blank(2000, 3), generator=stream(1))
            p[name] = float(CHAIN.log_prob(end.tokens).mean())
        assert p["tweedie@40:temperature=0.3"] > p["tweedie@40"] + 0.2

    def test_no_choice_is_no_trouble(self) -> None:
        """A vocabulary of one token, and ratios that are all zero."""
        alone = sharpened(torch.zeros(1, 2, 1).double(), torch.tensor([[0, 0]]), Draw())
        assert alone.tolist() == [[[1.0], [1.0]]]
        never = torch.full((1, 1, 3), -torch.inf, dtype=torch.float64)
        assert sharpened(never, torch.tensor([[MASK]]), Draw()).sum() == 0


@noises
def test_the_network_is_told_the_time_of_its_tokens(noise: Noise) -> None:
    """T + 1 calls: the last, at 1e-5, removes what noise is left."""
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


def test_what_is_masked_at_the_end_is_drawn_there() -> None:
    """Ratios of nothing reveal nothing, until the noise is removed."""
    network = ExactScored(enumerated(CHAIN), "absorbing", ALPHA)
    network.log_score = lambda tokens, t: torch.full((*tokens.shape, 3), -50.0)  # type: ignore
    states = list(sampler("euler@3").steps(network, State.blank(4, 3), generator=stream(0)))
    assert [bool(state.masked.all()) for state in states] == [True, True, True, False]
    assert not states[-1].masked.any() and states[-1].nfe.tolist() == [4] * 4
