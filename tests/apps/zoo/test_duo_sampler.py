"""DUO's samplers: exact in the limit with any mixture, on all texts of a small truth."""

from __future__ import annotations

import pytest
import torch

from dsl.apps.zoo.duo import psi_posterior
from dsl.apps.zoo.kernel import Kernel
from dsl.core import oracle
from dsl.core.streams import stream
from dsl.core.types import MASK
from dsl.samplers.base import last
from dsl.samplers.registry import sampler
from dsl.samplers.state import State
from tests.apps.zoo.test_timed import p_value
from tests.exact_times import ExactTimed, double, enumerated, every


@pytest.mark.parametrize("kappa", [0.0, 0.3, 1.0])
def test_every_mixture_leads_from_marginal_to_marginal(kappa: float) -> None:
    """Of one token whose x̂_0 is its prior: Σ q_t(x_t) Ψ(x_s | x_t) = q_s(x_s), any t > s."""
    kernel, prior = Kernel("uniform", 4), double(0.5, 0.3, 0.2, 0.0)
    for later, sooner in ((0.0, 0.2), (0.2, 0.7), (0.7, 1.0)):
        given = [torch.full((4,), a, dtype=torch.float64) for a in (later, sooner)]
        rows = psi_posterior(kernel, every(4, 1), prior.expand(4, 1, 4), *given, kappa)
        before, after = (a * prior + (1 - a) / 4 for a in (later, sooner))
        torch.testing.assert_close(before @ rows[:, 0], after, rtol=0, atol=1e-14)


def test_its_error_falls_with_the_steps_while_it_corrects_as_often() -> None:
    """All 9 texts by their transition matrix, κ = 1 - 4/T: the error is that of 1/T."""
    errors = [distance(steps, 1 - 4 / steps) for steps in (20, 80)]
    assert errors[0] == pytest.approx(4 * errors[1], rel=0.1) and errors[1] < 0.01


@pytest.mark.parametrize("kappa", [0.95, 0.5])
def test_a_fixed_mixture_is_exact_in_the_limit_too(kappa: float) -> None:
    """The way there and back changes fewer tokens as t → 0: the error falls as T^-1/2."""
    errors = [distance(steps, kappa) for steps in (10, 160)]
    assert errors[1] < 0.4 * errors[0] and errors[1] < 0.02


@pytest.mark.parametrize("name", ["duo@60", "psi@60", "psi@60:kappa=0.9,t_on=1,t_off=0"])
def test_the_exact_network_draws_from_the_truth(name: str) -> None:
    truth = enumerated(oracle.markov(3, 2, sharpness=0.8))
    network = ExactTimed(truth, "uniform")
    end = last(sampler(name), network, State.blank(4000, 2), generator=stream(1))
    assert p_value(truth, end.tokens) > 1e-4


def test_a_wrong_network_is_noticed() -> None:
    truth = enumerated(oracle.markov(3, 2, sharpness=0.8))
    other = ExactTimed(enumerated(oracle.markov(3, 2, seed=1, sharpness=0.8)), "uniform")
    end = last(sampler("psi@30"), other, State.blank(4000, 2), generator=stream(1))
    assert p_value(truth, end.tokens) < 1e-9


def test_without_a_corrector_it_is_the_ancestral_sampler() -> None:
    network = ExactTimed(enumerated(oracle.markov(3, 4)), "uniform")
    same = ("timed@5", "duo@5", "psi@5:kappa=1", "psi@5:kappa=0.5,t_on=0.3,t_off=0.3")
    ends = [last(sampler(n), network, State.blank(50, 4), generator=stream(0)).tokens for n in same]
    assert all(torch.equal(end, ends[0]) for end in ends)
    other = last(sampler("psi@5"), network, State.blank(50, 4), generator=stream(0)).tokens
    assert not torch.equal(other, ends[0])


def test_the_greedy_tail_takes_the_likeliest_tokens_of_the_last_answer() -> None:
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


def test_masks_and_senseless_weights_are_refused() -> None:
    network = ExactTimed(enumerated(oracle.two_bit()), "absorbing")
    with pytest.raises(ValueError, match="network's noise is absorbing: it is served by timed"):
        last(sampler("duo@4"), network, State.blank(2, 2))
    with pytest.raises(ValueError, match=r"kappa must lie in \[0, 1\], got 1.5"):
        sampler("psi@4:kappa=1.5")
    with pytest.raises(ValueError, match="t_off <= t_on"):
        sampler("psi@4:t_off=0.9")


def distance(steps: int, kappa: float) -> float:
    """Return the total variation between what T steps of the exact network draw, and the truth."""
    truth = enumerated(oracle.markov(3, 2, sharpness=0.8))
    network, texts = ExactTimed(truth, "uniform"), every(3, 2)
    p = torch.full((9,), 1 / 9, dtype=torch.float64)
    for k in range(steps):
        t, s = (torch.full((9,), 1 - j / steps, dtype=torch.float64) for j in (k, k + 1))
        clean = network.at_time(texts, t).softmax(-1)
        rows = psi_posterior(network.kernel, texts, clean, 1 - t, 1 - s, kappa)
        p = p @ (rows[:, 0, texts[:, 0]] * rows[:, 1, texts[:, 1]])
    return 0.5 * float((p - truth.log_prob(texts).exp()).abs().sum())
