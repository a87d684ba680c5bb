"""The operator from Gaussian to uniform diffusion, and the law of what it leads to."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import chisquare

from dsl.apps.zoo.duo import latents, signal_for, transformed
from dsl.apps.zoo.kernel import Kernel
from dsl.core.streams import stream
from tests.exact_times import double, every


@pytest.mark.parametrize("v", [2, 27, 50_257])
def test_it_leads_from_none_to_all_and_back(v: int) -> None:
    alpha = double(0.0, 1e-3, 0.1, 0.5, 0.9, 0.999, 1.0)
    torch.testing.assert_close(transformed(signal_for(alpha, v), v), alpha, rtol=0, atol=2e-7)
    signal = torch.linspace(0, 1, 200, dtype=torch.float64)
    image = transformed(signal, v)
    assert abs(float(image[0])) < 1e-12 and float(image[-1]) == 1
    inner = image[image < 1 - 1e-9]
    assert (inner.diff() > 0).all() and len(inner) > 150


def test_of_two_tokens_it_is_an_error_function() -> None:
    """The difference of two coordinates is Gaussian: T = erf(α̃ / 2σ̃)."""
    ratio = double(0.0, 0.1, 1.0, 3.0, 6.0)
    found = transformed(ratio / (1 + ratio.square()).sqrt(), 2)
    torch.testing.assert_close(found, torch.erf(ratio / 2), rtol=0, atol=1e-14)


@pytest.mark.parametrize("v", [3, 40])
@pytest.mark.parametrize("alpha", [0.0, 0.2, 0.9])
def test_the_argmax_of_a_latent_is_the_tokens_corruption(v: int, alpha: float) -> None:
    """χ² of 20,000 positions against what `Kernel.corrupt` draws from: α δ + (1 - α) / V."""
    tokens = torch.ones(10, 2000, dtype=torch.long)
    w = latents(tokens, torch.full((10,), alpha), v, generator=stream(0))
    counts = torch.bincount(w.argmax(-1).flatten(), minlength=v)
    kernel = Kernel("uniform", v)
    law = kernel.log_likelihood(every(v, 1), torch.full((v,), alpha).double())[:, 0, 1].exp()
    assert chisquare(counts.numpy(), 20_000 * law.numpy()).pvalue > 1e-4


def test_a_latent_has_unit_variance_about_its_token() -> None:
    tokens = torch.randint(5, (4, 3000), generator=stream(0))
    alpha = torch.tensor([0.1, 0.4, 0.7, 0.99])
    signal = signal_for(alpha, 5)
    w = latents(tokens, alpha, 5, generator=stream(1)).double()
    x = torch.nn.functional.one_hot(tokens, 5)
    rest = w - signal.view(-1, 1, 1) * x
    torch.testing.assert_close(rest.square().mean((1, 2)), 1 - signal.square(), rtol=0.05, atol=0)


def test_one_token_is_no_choice() -> None:
    with pytest.raises(ValueError, match="at least 2 tokens, got 1"):
        transformed(double(0.5), 1)
