"""EDM where the answer is known: with one token x̂ is constant, and y = x + σn at every step."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dsl.core import oracle, sphere
from dsl.core.channel import physical
from dsl.core.denoiser import Endpoints
from dsl.core.streams import stream
from dsl.samplers.base import last
from dsl.samplers.edm import Edm, karras
from dsl.samplers.state import State
from tests.doubles import Double

X = sphere.random(1, 8, generator=stream(0), dtype=torch.float64)
B, L = 3000, 4


class Certain(Double):
    """The denoiser of a vocabulary of one token; it keeps the states it was asked about."""

    codebook, snr_max = X, 100.0

    def __init__(self) -> None:
        self.truth = oracle.Enumerated(torch.zeros(1, L, dtype=torch.long), X[0, :1] * 0, X)
        self.asked: list[Tensor] = []

    def __call__(self, z: Tensor | Endpoints, /, *, at: Tensor | None = None) -> Tensor:
        assert isinstance(z, Tensor)
        self.asked.append(z)
        return self.truth(z, at=at)


def standardised(z: Tensor, sigma: Tensor) -> Tensor:
    return (physical(z, sigma) - X[0]) / sigma.unsqueeze(-1)


def assert_standard_normal(n: Tensor) -> None:
    """Mean 0 and variance 1 within 5 standard errors."""
    size = n.numel()
    assert abs(float(n.mean())) < 5 * (1 / size) ** 0.5
    assert abs(float(n.var()) - 1) < 5 * (2 / size) ** 0.5


CHURNS = [
    {"churn": 0.0},
    {"churn": 2.0},
    {"churn": 1.41, "churn_means": "factor"},
    {"churn": 3.0, "churn_means": "factor", "churn_min": 0.5, "churn_max": 4.0},
]


@pytest.mark.parametrize("heun", [False, True])
@pytest.mark.parametrize("churn", CHURNS)
def test_noise_put_back_leaves_the_marginal_as_it_was(churn: dict[str, float], heun: bool) -> None:
    walk = Edm(6, sigma_max=8.0, heun=heun, start="mean", **churn)  # type: ignore[arg-type]
    for state in walk.steps(Certain(), State.blank(B, L), generator=stream(1)):
        assert state.z is not None and state.snr is not None
        assert_standard_normal(standardised(state.z, state.snr**-0.5))


def test_the_slope_is_taken_where_the_noise_was_raised_to() -> None:
    """Euler asks once a step; with σ̂ = 2σ the state it asks about has the noise of 2σ."""
    toy = Certain()
    walk = Edm(5, sigma_max=8.0, heun=False, churn=2.0, churn_means="factor")
    last(walk, toy, State.blank(B, L), generator=stream(1))
    for k, (z, sigma) in enumerate(zip(toy.asked, karras(5, 0.1, 8.0), strict=False)):
        n = standardised(z, torch.full((B, L), 2 * sigma).double())
        # y_0 lacks its mean x, of which σ_0/σ̂_0 · σ_1/σ̂_1 … = 2^-k is still missing at step k
        assert_standard_normal(n + X[0] / 8.0 / 2 ** (k + 1))


@pytest.mark.parametrize("heun", [False, True])
def test_a_start_at_the_mean_is_off_by_just_the_mean(heun: bool) -> None:
    """From the same noise the two walks stay x̂/σ_max apart, in units of σ."""
    ends = []
    for start in ("zero", "mean"):
        walk = Edm(6, sigma_max=2.0, heun=heun, start=start)  # type: ignore[arg-type]
        end = last(walk, Certain(), State.blank(16, L), generator=stream(1))
        assert end.z is not None and end.snr is not None
        assert end.nfe.tolist() == [(12 if heun else 6) + (start == "mean")] * 16
        ends.append(standardised(end.z, end.snr**-0.5))
    torch.testing.assert_close(ends[1] - ends[0], (X[0] / 2.0).expand(16, L, 8))


def test_a_start_at_the_mean_is_the_prior_mean_of_the_denoiser() -> None:
    """With several tokens, x̂(0) = Σ_v P(v) x_v at every position, kept when nothing is learned."""
    chain = oracle.markov(5, 3)
    means = []
    for start in ("zero", "mean"):
        walk = Edm(1, sigma_max=1e4, stop=0.999e4, heun=False, start=start)  # type: ignore[arg-type]
        end = last(walk, chain, State.blank(1, 3), generator=stream(1))
        assert end.z is not None and end.snr is not None
        means.append(physical(end.z, end.snr**-0.5))
    prior = chain(torch.zeros(1, 3, 4).double()).softmax(-1) @ chain.codebook
    # a step of 0.1% keeps 99.9% of the difference
    torch.testing.assert_close(means[1] - means[0], 0.999 * prior, atol=1e-3, rtol=0)
