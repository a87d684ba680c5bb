"""The theorems of sections 2 and 4 and appendix A, checked against exact oracles.

Statistical laws state their draws and allow 4 standard errors.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

from dsl.core import oracle, sphere
from dsl.core.channel import advance, observe
from dsl.core.denoiser import posterior_mean
from dsl.core.path import RandomOrder, Shared, SNRPath, Tabulated
from dsl.core.streams import stream


def gaussian_posterior(
    toy: oracle.Enumerated, state: Tensor, mean_scale: Tensor, deviation: Tensor
) -> Tensor:
    """Return P(sequence | state) from explicit Gaussian densities N(scale · x, deviation²)."""
    x = toy.codebook[toy.sequences]  # (k, l, d)
    residual = (state - mean_scale.unsqueeze(-1) * x) / deviation.unsqueeze(-1)
    return (toy.log_weights - 0.5 * residual.square().sum(dim=(-1, -2))).softmax(dim=0)


def localization_posterior(toy: oracle.Enumerated, z: Tensor, snr: Tensor) -> Tensor:
    return gaussian_posterior(toy, z, snr, snr.sqrt())


def as_enumerated(truth: oracle.Oracle) -> oracle.Enumerated:
    return truth.enumerated() if isinstance(truth, oracle.Markov) else truth


def snr_invariance(truth: oracle.Oracle) -> None:
    """Law 1: the Bayes posterior of a state does not depend on the SNR it is said to have."""
    toy = as_enumerated(truth)
    generator = stream(1)
    z = 3 * torch.randn(toy.length, toy.codebook.shape[1], generator=generator).double()
    one = torch.rand(toy.length, generator=generator).double() + 0.1
    other = 20 * torch.rand(toy.length, generator=generator).double() + 5
    here = localization_posterior(toy, z, one)
    there = localization_posterior(toy, z, other)
    torch.testing.assert_close(here, there, atol=1e-9, rtol=0)
    # … and it is what the denoiser says of the state alone.
    marginal = torch.zeros(toy.length, len(toy.codebook), dtype=z.dtype)
    for weight, sequence in zip(here, toy.sequences, strict=True):
        marginal[range(toy.length), sequence] += weight
    torch.testing.assert_close(truth(z.unsqueeze(0))[0].softmax(-1), marginal, atol=1e-9, rtol=0)


def test_the_posterior_does_not_depend_on_the_nominal_snr(truth: oracle.Oracle) -> None:
    snr_invariance(truth)


def test_unit_norm_is_necessary_for_snr_invariance() -> None:
    toy = oracle.cyclic(5)
    stretched = torch.linspace(0.5, 1.5, 5).double().unsqueeze(-1) * toy.codebook
    # Give the sequences different norms too: rotations alone would share one.
    broken = oracle.Enumerated(
        torch.tensor([[0, 1], [2, 3], [4, 4]]), torch.zeros(3).double(), stretched
    )
    with pytest.raises(AssertionError):
        snr_invariance(broken)


def test_the_localization_coordinate_is_necessary_for_snr_invariance() -> None:
    """A variance-preserving state y = αx + σε on the unit sphere still needs its noise level."""
    toy = oracle.cyclic(5)
    y = torch.randn(5, 2, generator=stream(2)).double()
    posteriors = []
    for alpha in (0.2, 0.9):
        scale = torch.full((5,), alpha).double()
        posteriors.append(gaussian_posterior(toy, y, scale, (1 - scale**2).sqrt()))
    assert (posteriors[0] - posteriors[1]).abs().max() > 0.05
    # Rescaled to the natural coordinate z = α y / σ², it no longer does (appendix B).
    scale = torch.full((5,), 0.9).double()
    z = (scale / (1 - scale**2)).unsqueeze(-1) * y
    snr = scale**2 / (1 - scale**2)
    torch.testing.assert_close(localization_posterior(toy, z, snr), posteriors[1])


def test_at_zero_the_posterior_is_the_prior(truth: oracle.Oracle) -> None:
    toy = as_enumerated(truth)
    z = toy.codebook.new_zeros(1, toy.length, toy.codebook.shape[1])
    prior = torch.zeros(toy.length, len(toy.codebook)).double()
    for p, sequence in zip(toy.log_weights.softmax(0), toy.sequences, strict=True):
        prior[range(toy.length), sequence] += p
    torch.testing.assert_close(truth(z)[0].softmax(-1), prior, atol=1e-12, rtol=0)


def test_a_large_snr_recovers_the_tokens(truth: oracle.Oracle, generator: torch.Generator) -> None:
    tokens = truth.sample(256, generator=generator)
    snr = torch.full(tokens.shape, 200.0).double()
    z = observe(truth.codebook[tokens], snr, generator=generator)
    assert (truth(z).argmax(-1) == tokens).all()


@for_all(st.integers(0, 2**31), st.floats(0.0, 30.0))
@settings(max_examples=50, deadline=None)
def test_norm_and_direction_split(seed: int, radius: float) -> None:
    """The score of a token is ‖z‖ cos θ: the direction ranks, the norm concentrates (eq. 12)."""
    codebook = sphere.random(9, 4, generator=stream(seed), dtype=torch.float64)
    direction = sphere.random(1, 4, generator=stream(seed, 1), dtype=torch.float64)
    toy = oracle.Enumerated(torch.arange(9).unsqueeze(1), torch.zeros(9).double(), codebook)
    logits = toy((radius * direction).unsqueeze(0))[0, 0]
    torch.testing.assert_close(logits, radius * (codebook @ direction[0]))

    def entropy(r: float) -> float:
        return float(torch.distributions.Categorical(logits=logits / radius * r).entropy())

    if radius > 0.1:
        assert entropy(2 * radius) <= entropy(radius) + 1e-12


@for_all(st.integers(0, 2**31), st.floats(0.0, 20.0))
@settings(max_examples=50, deadline=None)
def test_entropy_envelope_at_bounded_radius(seed: int, beta: float) -> None:
    """Within radius β no probability leaves π e^{±2β}, so the entropy has a floor (A.9)."""
    generator = stream(seed)
    codebook = sphere.random(6, 3, generator=generator, dtype=torch.float64)
    log_pi = torch.randn(6, generator=generator).double().log_softmax(0)
    toy = oracle.Enumerated(torch.arange(6).unsqueeze(1), log_pi, codebook)
    u = torch.rand(1, generator=generator).double() * sphere.random(1, 3, generator=generator)
    log_q = toy((beta * u).double().unsqueeze(0))[0, 0].log_softmax(-1)
    assert (log_q - log_pi).abs().max() <= 2 * beta + 1e-9
    # q_max ≤ π_max e^{2β} bounds the entropy from below by the min-entropy.
    entropy = -(log_q.exp() * log_q).sum()
    assert entropy >= -(log_pi.max() + 2 * beta).clamp(max=0) - 1e-9


def lipschitz_constant(truth: oracle.Oracle, z: Tensor) -> float:
    def mean(state: Tensor) -> Tensor:
        return posterior_mean(truth(state), truth.codebook)

    jacobian = torch.autograd.functional.jacobian(mean, z)
    size = z.numel()
    return float(torch.linalg.matrix_norm(jacobian.reshape(size, size), ord=2))


@for_all(st.integers(0, 2**31))
@settings(max_examples=50, deadline=None)
def test_the_posterior_mean_is_one_lipschitz_per_token(seed: int) -> None:
    generator = stream(seed)
    codebook = sphere.random(7, 3, generator=generator, dtype=torch.float64)
    log_pi = 2 * torch.randn(7, generator=generator).double()
    toy = oracle.Enumerated(torch.arange(7).unsqueeze(1), log_pi, codebook)
    z = 3 * torch.randn(1, 1, 3, generator=generator).double()
    assert lipschitz_constant(toy, z) <= 1 + 1e-9


def test_for_sequences_the_bound_is_their_length(truth: oracle.Oracle) -> None:
    z = torch.randn(1, truth.length, truth.codebook.shape[1]).double()
    assert lipschitz_constant(truth, z) <= truth.length + 1e-9


def test_the_two_bit_toy_exceeds_one() -> None:
    """The paper's lemma, read for whole sequences, is broken by its own toy: the constant is 2."""
    zero = torch.zeros(1, 2, 1).double()
    assert lipschitz_constant(oracle.two_bit(), zero) == pytest.approx(2.0)


def test_the_two_bit_denoiser_is_a_hyperbolic_tangent() -> None:
    toy = oracle.two_bit()
    z = 2 * torch.randn(64, 2, 1).double()
    wanted = torch.tanh(z.sum(dim=1, keepdim=True)).expand(-1, 2, 1)
    torch.testing.assert_close(posterior_mean(toy(z), toy.codebook), wanted)


def test_the_correction_window_of_the_two_bit_toy() -> None:
    """While z₁ + z₂ > 0 a wrong second bit is pulled back to 11; beyond it, to 00 (A.8)."""
    toy = oracle.two_bit()
    inside = torch.tensor([[[2.0], [-0.5]]]).double()
    outside = torch.tensor([[[0.5], [-2.0]]]).double()
    assert (posterior_mean(toy(inside), toy.codebook) > 0).all()
    assert (posterior_mean(toy(outside), toy.codebook) < 0).all()


def contour(kind: str, length: int) -> SNRPath:
    if kind == "shared":
        return Shared(length, snr_max=3.0)
    if kind == "random order":
        return RandomOrder(torch.tensor([[1, 2, 0]]), snr_max=3.0)
    corners = torch.tensor([[0.0, 0, 0], [2.5, 0.5, 1], [3, 3, 2]]).double()
    return Tabulated(torch.tensor([0.0, 0.4, 1.0]).double(), corners)


def same_marginals(kind: str, *, draws: int = 40_000, steps: int = 150) -> None:
    """Law 4: the conditional and the unconditional SDE share their marginals.

    `draws` sequences on each side; the first two moments of ⟨z_i, x_v⟩ and the cross moments
    between positions must agree within 4 standard errors plus the O(dt) bias of Euler's method.
    """
    truth = oracle.markov(3, 3, sharpness=1.0)
    generator = stream(3)
    path = contour(kind, truth.length)
    grid = torch.linspace(0, 1, steps + 1).double()
    snr = path(grid)[0]
    z = truth.codebook.new_zeros(draws, truth.length, truth.codebook.shape[1])
    for d_snr in snr.diff(dim=0):
        x_hat = posterior_mean(truth(z), truth.codebook)
        z = advance(z, x_hat, d_snr.expand(draws, -1), generator=generator)
    x = truth.codebook[truth.sample(draws, generator=generator)]
    reference = observe(x, snr[-1].expand(draws, -1), generator=generator)

    def moments(state: Tensor) -> Tensor:
        field = (state @ truth.codebook.T).flatten(1)
        pairs = torch.einsum("na,nb->nab", field, field).flatten(1)
        return torch.cat([field, pairs], dim=1)

    ours, exact = moments(z), moments(reference)
    error = ((ours.var(dim=0) + exact.var(dim=0)) / draws).sqrt()
    bias = 3.0 / steps * exact.abs().mean(dim=0)
    assert ((ours.mean(0) - exact.mean(0)).abs() <= 4 * error + bias).all()


@pytest.mark.parametrize(
    "kind",
    [pytest.param(k, marks=pytest.mark.slow) for k in ("shared", "random order", "tabulated")],
)
def test_conditional_and_unconditional_sde_share_their_marginals(kind: str) -> None:
    same_marginals(kind)


@for_all(st.integers(0, 2**31))
@settings(max_examples=25, deadline=None)
def test_cross_entropy_and_mse_share_their_minimiser(seed: int) -> None:
    """The CE-optimal categorical is the posterior, whose mean embedding is the MMSE estimate."""
    generator = stream(seed)
    codebook = sphere.random(5, 3, generator=generator, dtype=torch.float64)
    p = torch.randn(5, generator=generator).double().softmax(0)
    logits = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    x_hat = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [logits, x_hat],
        max_iter=500,
        tolerance_grad=1e-12,
        tolerance_change=1e-16,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        cross_entropy = -(p * logits.log_softmax(0)).sum()
        squared_error = (p * (codebook - x_hat).square().sum(dim=1)).sum()
        loss = cross_entropy + squared_error
        loss.backward()
        return loss

    optimizer.step(closure)
    torch.testing.assert_close(logits.softmax(0).detach(), p, atol=1e-5, rtol=0)
    torch.testing.assert_close(
        posterior_mean(logits.detach(), codebook), x_hat.detach(), atol=1e-5, rtol=0
    )


def test_the_cyclic_toy_has_entropy_log_k() -> None:
    toy = oracle.cyclic(7)
    assert float(toy.log_prob(toy.sequences[:1])) == pytest.approx(-math.log(7))


class TestBrokenMathematics:
    """Each ingredient is necessary: without it, one of the laws above fails."""

    def test_without_unit_norm(self) -> None:
        test_unit_norm_is_necessary_for_snr_invariance()

    def test_without_the_square_root(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def wrong(x: Tensor, snr: Tensor, *, generator: torch.Generator) -> Tensor:
            gamma = snr.unsqueeze(-1)
            return gamma * x + gamma * torch.randn(x.shape, generator=generator, dtype=x.dtype)

        monkeypatch.setattr("dsl.core.channel.observe", wrong)
        with pytest.raises(AssertionError):
            same_marginals("shared", draws=5000, steps=50)
