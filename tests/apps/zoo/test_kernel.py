"""The discrete channel: posterior and corruption against transition matrices."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dsl.apps.zoo.kernel import Kernel, Noise
from dsl.core.alpha import Cosine, LateCosine, Linear, Polynomial, Schedule, schedule
from dsl.core.streams import stream
from dsl.core.types import MASK
from tests.conftest import assert_near

V = 4
NOISES: list[Noise] = ["absorbing", "uniform"]
SCHEDULES = [Linear(), Cosine(), LateCosine(), Polynomial(1.5), Polynomial(3.0)]


def matrix(noise: Noise, alpha: float) -> Tensor:
    """Return the matrix q(column | row) over all states of one token."""
    states = Kernel(noise, V).states
    onto = torch.zeros(states, dtype=torch.float64)
    if noise == "absorbing":
        onto[-1] = 1
    else:
        onto[:] = 1 / V
    return alpha * torch.eye(states, dtype=torch.float64) + (1 - alpha) * onto


def ids(noise: Noise) -> Tensor:
    """Every state of a token, as token ids."""
    states = torch.arange(Kernel(noise, V).states)
    return torch.where(states == V, MASK, states)


@pytest.mark.parametrize("noise", NOISES)
def test_the_posterior_is_bayes_rule(noise: Noise) -> None:
    """Row by row of the transition matrices, for an uncertain clean token."""
    kernel, alpha_t, alpha_s = Kernel(noise, V), 0.3, 0.7
    clean = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    tokens = ids(noise).unsqueeze(0)
    rows = clean.expand(1, tokens.shape[1], V)
    found = kernel.posterior(tokens, rows, torch.tensor([alpha_t]), torch.tensor([alpha_s]))[0]
    reached = clean @ matrix(noise, alpha_s)[:V]  # Σ_v x̂(v) q(x_s | v)
    onwards = matrix(noise, alpha_t / alpha_s)
    for j, row in enumerate(found):
        joint = reached * onwards[:, j]
        assert_near(row, joint / joint.sum())


@pytest.mark.parametrize("noise", NOISES)
def test_two_steps_are_one(noise: Noise) -> None:
    assert_near(matrix(noise, 0.6) @ matrix(noise, 0.5), matrix(noise, 0.3))


@pytest.mark.parametrize("noise", NOISES)
def test_likelihoods_are_columns_of_the_matrix(noise: Noise) -> None:
    kernel = Kernel(noise, V)
    found = kernel.log_likelihood(ids(noise).unsqueeze(0), torch.tensor([0.3]).double())[0]
    assert_near(found.exp(), matrix(noise, 0.3)[:V].T)


@pytest.mark.parametrize("noise", NOISES)
def test_corruption_draws_from_the_matrix(noise: Noise) -> None:
    n = 40_000
    kernel = Kernel(noise, V)
    drawn = kernel.corrupt(torch.full((n, 1), 2), torch.full((n,), 0.3), generator=stream(0))
    for state, p in zip(ids(noise), matrix(noise, 0.3)[2], strict=True):
        share = (drawn == state).double().mean()
        assert abs(float(share - p)) < 4 * float((p * (1 - p) / n) ** 0.5) + 1e-12


@pytest.mark.parametrize("noise", NOISES)
def test_there_is_no_noise_at_the_start_and_only_noise_at_the_end(noise: Noise) -> None:
    kernel, tokens = Kernel(noise, V), torch.randint(V, (50, 8))
    assert torch.equal(kernel.corrupt(tokens, torch.ones(50)), tokens)
    gone = kernel.log_likelihood(kernel.corrupt(tokens, torch.zeros(50)), torch.zeros(50))
    assert (gone == gone[..., :1]).all()


@pytest.mark.parametrize("alpha", SCHEDULES)
def test_schedules_fall_from_one_to_zero_with_their_slopes(alpha: Schedule) -> None:
    ends = alpha(torch.tensor([0.0, 1.0], dtype=torch.float64))
    assert_near(ends, torch.tensor([1.0, 0.0], dtype=torch.float64))
    t = torch.linspace(0.05, 0.95, 19, dtype=torch.float64)
    h = 1e-6
    assert_near(alpha.slope(t), (alpha(t + h) - alpha(t - h)) / (2 * h), share=1e-6)
    assert (alpha.slope(t) < 0).all()


def test_the_cosines_are_on_either_side_of_the_line() -> None:
    """MD4's is below the line, Hoogeboom's above; the latter is the root of a squared cosine."""
    t = torch.linspace(0.05, 0.95, 19, dtype=torch.float64)
    assert (Cosine()(t) < Linear()(t)).all() and (LateCosine()(t) > Linear()(t)).all()
    angle = torch.pi / 2 * (torch.cat([torch.zeros(1), t]) + 0.008) / 1.008
    gaussian = angle.cos() ** 2 / angle[0].cos() ** 2
    assert_near(LateCosine()(t), gaussian[1:].sqrt())
    for dtype in (torch.float32, torch.float64):
        assert float(LateCosine()(torch.ones((), dtype=dtype))) == 0


def test_schedules_have_names() -> None:
    assert [schedule("linear"), schedule("cosine"), schedule("polynomial", 3.0)] == [
        Linear(),
        Cosine(),
        Polynomial(3.0),
    ]
    assert schedule("late-cosine") == LateCosine()
    with pytest.raises(ValueError, match=r"power of a schedule must lie in \[1, 100\], got 0.5"):
        Polynomial(0.5)
