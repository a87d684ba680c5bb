"""The ancestral sampler of discrete processes against the truth: χ² on 4,000 draws."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import chisquare

from dsl.apps.zoo.kernel import Noise
from dsl.core import oracle
from dsl.core.alpha import Cosine, Linear, Schedule
from dsl.core.streams import stream
from dsl.core.types import MASK
from dsl.samplers.base import last
from dsl.samplers.registry import sampler
from dsl.samplers.state import State
from tests.exact_times import ExactTimed, enumerated

DRAWS = 4_000


def p_value(truth: oracle.Enumerated, tokens: torch.Tensor) -> float:
    """Return the p-value of the counts of all sequences, with rare ones pooled."""
    codes = len(truth.codebook) ** torch.arange(truth.length)
    kinds = (truth.sequences * codes).sum(dim=1)
    p = truth.log_weights.softmax(0)
    drawn = (tokens * codes).sum(dim=1)
    counts = (drawn.unsqueeze(1) == kinds).double().sum(dim=0)
    common = p * len(tokens) >= 5
    seen = torch.cat([counts[common], (len(tokens) - counts[common].sum()).view(1)])
    wanted = torch.cat([p[common], (1 - p[common].sum()).clamp(min=1e-9).view(1)]) * len(tokens)
    return float(chisquare(seen.numpy(), wanted.numpy()).pvalue)


@pytest.mark.parametrize("alpha", [Linear(), pytest.param(Cosine(), marks=pytest.mark.slow)])
@pytest.mark.parametrize("noise", ["absorbing", "uniform"])
def test_many_steps_of_the_exact_network_draw_from_the_truth(noise: Noise, alpha: Schedule) -> None:
    """A step treats positions as independent, so the error falls as 1/T: T = 60 is enough."""
    truth = enumerated(oracle.markov(3, 3, sharpness=0.8))
    network = ExactTimed(truth, noise, alpha)
    end = last(sampler("timed@60"), network, State.blank(DRAWS, 3), generator=stream(1))
    assert p_value(truth, end.tokens) > 1e-4


@pytest.mark.parametrize("noise", ["absorbing", "uniform"])
def test_a_wrong_network_is_noticed(noise: Noise) -> None:
    """The same test fails for the network of another distribution."""
    truth = enumerated(oracle.markov(3, 3, sharpness=0.8))
    other = ExactTimed(enumerated(oracle.markov(3, 3, seed=1, sharpness=0.8)), noise)
    end = last(sampler("timed@50"), other, State.blank(DRAWS, 3), generator=stream(1))
    assert p_value(truth, end.tokens) < 1e-9


@pytest.mark.parametrize("noise", ["absorbing", "uniform"])
def test_one_token_is_exact_in_a_single_step(noise: Noise) -> None:
    truth = enumerated(oracle.markov(4, 1))
    end = last(sampler("timed@1"), ExactTimed(truth, noise), State.blank(DRAWS, 1),
               generator=stream(2))  # fmt: skip
    assert p_value(truth, end.tokens) > 1e-4


def test_the_network_is_called_at_the_time_of_its_tokens() -> None:
    network = ExactTimed(enumerated(oracle.markov(3, 4)), "uniform")
    start = torch.full((2, 4), MASK)
    start[1] = torch.tensor([0, 1, 2, 0])
    end = last(sampler("timed@4"), network, State.start(start), generator=stream(0))
    assert [float(t[0]) for t in network.told] == pytest.approx([1.0, 0.75, 0.5, 0.25])
    assert end.nfe.tolist() == [4, 0] and torch.equal(end.tokens[1], start[1])
