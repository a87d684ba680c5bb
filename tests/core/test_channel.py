from __future__ import annotations

import pytest
import torch

from dsl.core import sphere
from dsl.core.channel import (
    advance,
    endpoint,
    natural,
    observe,
    physical,
    require_finite,
    snr_from_sigma,
)
from dsl.core.streams import Streams, stream


def clean(b: int = 2, length: int = 3) -> torch.Tensor:
    return sphere.random(b * length, 4, dtype=torch.float64).reshape(b, length, 4)


def test_zero_snr_is_the_zero_vector() -> None:
    assert (observe(clean(), torch.zeros(2, 3).double()) == 0).all()
    assert (endpoint(clean(), torch.zeros(2, 3).double()) == 0).all()


def test_observations_have_mean_and_variance_gamma(generator: torch.Generator) -> None:
    """100,000 draws, 4 standard errors."""
    n, gamma = 100_000, 2.5
    x = sphere.simplex(3, dtype=torch.float64)[:1].expand(n, 1, -1)
    z = observe(x, torch.full((n, 1), gamma).double(), generator=generator)
    error = (gamma / n) ** 0.5
    assert ((z - gamma * x).mean(dim=(0, 1)).abs() < 4 * error).all()
    assert ((z.var(dim=0) - gamma).abs() < 4 * gamma * (2 / n) ** 0.5).all()


def test_two_observations_add_up_to_one_at_the_summed_snr(generator: torch.Generator) -> None:
    """Z is a natural parameter: advancing by dγ towards x is observing x at γ + dγ."""
    n = 100_000
    x = sphere.simplex(3, dtype=torch.float64)[:1].expand(n, 1, -1)
    first = observe(x, torch.full((n, 1), 1.0).double(), generator=generator)
    both = advance(first, x, torch.full((n, 1), 2.0).double(), generator=generator)
    assert ((both - 3 * x).mean(dim=(0, 1)).abs() < 4 * (3 / n) ** 0.5).all()
    assert ((both.var(dim=0) - 3).abs() < 4 * 3 * (2 / n) ** 0.5).all()


def test_edm_coordinates_round_trip() -> None:
    sigma = torch.rand(2, 3).double() + 0.1
    z = torch.randn(2, 3, 4).double()
    torch.testing.assert_close(natural(physical(z, sigma), sigma), z)


def test_the_edm_state_is_the_channel_in_other_coordinates() -> None:
    """Y = x + σε divided by σ² is γx + √γ ε, for the same ε."""
    x, eps, sigma = clean(), torch.randn(2, 3, 4).double(), torch.rand(2, 3).double() + 0.1
    gamma = snr_from_sigma(sigma).unsqueeze(-1)
    z = natural(x + sigma.unsqueeze(-1) * eps, sigma)
    torch.testing.assert_close(z, gamma * x + gamma.sqrt() * eps)


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_a_bad_snr_is_named(bad: float) -> None:
    snr = torch.ones(2, 3).double()
    snr[1, 2] = bad
    for function in (observe, endpoint):
        with pytest.raises(ValueError, match=r"SNR must be finite and >= 0.*\(1, 2\)"):
            function(clean(), snr)


def test_a_state_that_is_not_finite_is_named() -> None:
    z = torch.zeros(1, 2, 3)
    z[0, 1, 2] = float("nan")
    with pytest.raises(ValueError, match=r"must be finite.*\(0, 1, 2\)"):
        require_finite(z)


def test_a_sequence_draws_the_same_noise_in_any_batch() -> None:
    x, snr = clean(4), torch.ones(4, 3).double()
    whole = observe(x, snr, generator=Streams.derive(7, range(4)))
    part = observe(x[2:3], snr[2:3], generator=Streams.derive(7, [2]))
    assert torch.equal(whole[2:3], part)


def test_streams_differ_by_seed_and_index() -> None:
    numbers = {
        float(torch.rand(1, generator=stream(seed, index)))
        for seed in range(4)
        for index in range(4)
    }
    assert len(numbers) == 16


def test_paths_of_different_depth_are_different_streams() -> None:
    paths = [(0,), (0, 0), (0, 0, 0), (3, 5), (3, 5, 0), (2**32,), (0, 1), (0, 2**32)]
    assert len({stream(*path).initial_seed() for path in paths}) == len(paths)


def test_streams_must_match_the_batch() -> None:
    with pytest.raises(ValueError, match="one stream per sequence, 2, got 3"):
        observe(clean(), torch.ones(2, 3).double(), generator=Streams.derive(0, range(3)))


def test_negative_seeds_are_refused() -> None:
    with pytest.raises(ValueError, match="non-negative"):
        stream(-1)
