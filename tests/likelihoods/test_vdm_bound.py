"""The bound of a network with a clock where its first SNR is not small: the gap in closed form."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.distributions import Independent, Normal, kl_divergence

from dsl.core import oracle, sphere
from dsl.core.streams import stream
from dsl.likelihoods.vdm import VdmBound, prior_nats
from tests.doubles import Double

TWO_BIT = oracle.two_bit()


class From(Double):
    """The exact denoiser of the two-bit toy, which knows SNRs from `low` upwards."""

    codebook = TWO_BIT.codebook

    def __init__(self, low: float) -> None:
        self.snr_range = (low, 60.0)

    def at_snr(self, z: Tensor, snr: Tensor) -> Tensor:
        return TWO_BIT(z.to(self.codebook))


def learned(snr: float) -> float:
    """KL(q(z | x) ‖ p(z)) at this SNR, by quadrature.

    The log-ratio of the densities is u - ln cosh u, where u = ⟨x, z⟩ ~ N(2γ, 2γ) sums both bits.
    """
    u = torch.linspace(-12, 12, 20001).double() * math.sqrt(2 * snr) + 2 * snr
    density = Normal(2 * snr, math.sqrt(2 * snr)).log_prob(u).exp()
    return float(torch.trapezoid(density * (u - u.cosh().log()), u))


@pytest.mark.parametrize("low", [0.3, 1.0, 3.0])
def test_the_gap_of_the_bound_is_what_the_prior_does_not_know(low: float) -> None:
    """Bound + log P = KL(q(z_min | x) ‖ N) - KL(q(z_min | x) ‖ p): zero if N were the marginal."""
    tokens = TWO_BIT.sample(32, generator=stream(1))
    estimate = VdmBound(replicates=16, draws=128)(From(low), tokens, generator=stream(2))
    gap = float((estimate.nats + TWO_BIT.log_prob(tokens)).mean())
    wanted = 2 * prior_nats(low, 1) - learned(low)
    assert abs(gap - wanted) < 4 * estimate.mean_stderr
    # without the prior, or without either KL, the difference would be seen
    assert min(2 * prior_nats(low, 1), learned(low)) > 6 * estimate.mean_stderr


@pytest.mark.parametrize("low", [1e-3, 0.3, 1.0, 3.0])
def test_the_bound_is_never_below_the_truth(low: float) -> None:
    tokens = TWO_BIT.sample(32, generator=stream(1))
    estimate = VdmBound(replicates=16, draws=128)(From(low), tokens, generator=stream(2))
    gap = float((estimate.nats + TWO_BIT.log_prob(tokens)).mean())
    assert gap > -4 * estimate.mean_stderr


@pytest.mark.parametrize("snr", [1e-3, 0.4, 5.0])
@pytest.mark.parametrize("dim", [1, 5])
def test_the_prior_is_the_divergence_from_a_standard_normal(snr: float, dim: int) -> None:
    """In VP's coordinate √(γ/(1+γ)) x + √(1/(1+γ)) ε, whichever unit vector x is."""
    (x,) = sphere.random(1, dim, generator=stream(0), dtype=torch.float64)
    ours = Normal(math.sqrt(snr / (1 + snr)) * x, torch.full_like(x, (1 + snr) ** -0.5))
    standard = Normal(torch.zeros_like(x), torch.ones_like(x))
    wanted = kl_divergence(Independent(ours, 1), Independent(standard, 1))
    assert prior_nats(snr, dim) == pytest.approx(float(wanted))
