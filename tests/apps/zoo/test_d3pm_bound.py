"""The bound in T steps: all noisy states of short texts are enumerated, so most laws are exact."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from dsl.apps.zoo.d3pm import Vlb, changed, step_nats
from dsl.apps.zoo.kernel import Kernel, Noise
from dsl.core import oracle
from dsl.core.alpha import Cosine, LateCosine, Linear, Schedule
from dsl.core.denoiser import Endpoints
from dsl.core.streams import Streams, stream
from dsl.core.types import MASK
from dsl.likelihoods import roar
from dsl.samplers.base import last
from dsl.samplers.registry import sampler
from dsl.samplers.state import State
from tests.conftest import assert_near
from tests.doubles import Double
from tests.exact_times import ExactTimed, enumerated

V, L = 3, 3
NOISES: list[Noise] = ["absorbing", "uniform"]
TRUTH = enumerated(oracle.markov(V, L, sharpness=0.8))
TEXTS = TRUTH.sequences


class Table(Double):
    """A network that knows nothing of the truth: random logits for every state of a text."""

    codebook = TRUTH.codebook

    def __init__(self, noise: Noise, alpha: Schedule = Linear(), *, timeless: bool = False) -> None:
        self.kernel, self.alpha, self.timeless = Kernel(noise, V), alpha, timeless
        self.rows = torch.randn((V + 1) ** L, L, V, generator=stream(3), dtype=torch.float64)
        self.sequences = 0

    def at_time(self, tokens: Tensor, t: Tensor) -> Tensor:
        self.sequences += len(tokens)
        scale = torch.ones_like(t) if self.timeless else 2 * t
        return scale.view(-1, 1, 1) * self.rows[(tokens + 1) @ (V + 1) ** torch.arange(L)]

    def __call__(self, z: Endpoints, /, *, at: Tensor) -> Tensor:
        return self.at_time(z.tokens, torch.ones(len(z.tokens)))[at]


def states(network: Any, length: int = L) -> Tensor:
    """Every noisy text."""
    ids = list(range(V)) + [MASK] * (network.kernel.noise == "absorbing")
    return torch.tensor(list(product(ids, repeat=length)))


def times(network: Any, k: int, steps: int, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """t, α_t and α_s of step k, for n texts."""
    t = torch.tensor([k / steps, (k - 1) / steps], dtype=torch.float64)
    alpha_t, alpha_s = network.alpha(t)
    return t[0].expand(n), alpha_t.expand(n), alpha_s.expand(n)


def bound(network: Any, steps: int, texts: Tensor = TEXTS) -> Tensor:
    """The bound of every text, with its expectations summed over all noisy states."""
    noisy, (b, length) = states(network, texts.shape[1]), texts.shape
    n = len(noisy)
    rows, clean = noisy.repeat(b, 1), texts.repeat_interleave(n, dim=0)
    total = torch.zeros(b, dtype=torch.float64)
    for k in range(1, steps + 1):
        t, alpha_t, alpha_s = times(network, k, steps, n)
        logits = network.at_time(noisy, t).double().repeat(b, 1, 1)
        log_q = network.kernel.log_likelihood(noisy, alpha_t)[:, torch.arange(length), texts]
        nats = step_nats(network.kernel, rows, clean, logits, alpha_t.repeat(b), alpha_s.repeat(b))
        weight = log_q.sum(dim=-1).exp().T  # of a state that cannot be, no network knows anything
        total += torch.where(weight > 0, weight * nats.sum(dim=-1).reshape(b, n), 0.0).sum(dim=1)
    return total


def chain(network: Any, steps: int) -> Tensor:
    """Write out all transitions of T steps back, and return log p of every text."""
    noisy, kernel = states(network), network.kernel
    n, index = len(noisy), torch.where(noisy == MASK, V, noisy)
    p = kernel.log_likelihood(noisy, torch.zeros(n).double())[..., 0].sum(dim=1).exp()  # π
    for k in range(steps, 0, -1):
        t, alpha_t, alpha_s = times(network, k, steps, n)
        clean = network.at_time(noisy, t).softmax(dim=-1)
        step = kernel.posterior(noisy, clean, alpha_t, alpha_s)  # (from, l, states)
        p = p @ step[:, torch.arange(L), index].prod(dim=-1)
    of = {tuple(row.tolist()): i for i, row in enumerate(noisy)}
    return p[[of[tuple(row.tolist())] for row in TEXTS]].log()


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(("alpha_t", "alpha_s"), [(0.3, 0.7), (0.0, 0.2), (0.6, 1.0), (0.0, 1.0)])
def test_a_step_costs_the_divergence_of_its_posteriors(
    noise: Noise, alpha_t: float, alpha_s: float
) -> None:
    """The closed form against the kernel's rows; at s = 0 it is the surprise at the clean token."""
    kernel = Kernel(noise, V)
    noisy = states(Table(noise))
    tokens = TEXTS[torch.arange(len(noisy)) % len(TEXTS)]
    if noise == "absorbing":  # what is seen is the token
        tokens = torch.where(noisy == MASK, tokens, noisy)
    logits = torch.randn(*noisy.shape, V, dtype=torch.float64)
    alphas = [torch.full((len(noisy),), a, dtype=torch.float64) for a in (alpha_t, alpha_s)]
    clean = torch.nn.functional.one_hot(tokens, V).double()
    q = kernel.posterior(noisy, clean, *alphas)
    p = kernel.posterior(noisy, logits.softmax(dim=-1), *alphas)
    found = step_nats(kernel, noisy, tokens, logits, *alphas)
    assert_near(found, torch.where(q > 0, q * (q / p).log(), 0.0).sum(dim=-1), share=1e-12)
    if alpha_s == 1:
        assert_near(found, -p.gather(-1, tokens.unsqueeze(-1)).squeeze(-1).log(), share=1e-12)


@pytest.mark.parametrize("alpha", [Linear(), LateCosine()])
@pytest.mark.parametrize("noise", NOISES)
def test_the_bound_of_the_exact_network_falls_to_the_truth_as_one_over_t(
    noise: Noise, alpha: Schedule
) -> None:
    """In a step positions move independently, which costs their correlation: of order 1/T² each."""
    network, p = ExactTimed(TRUTH, noise, alpha), TRUTH.log_weights.softmax(0)
    exact = -TRUTH.log_prob(TEXTS)
    found = {steps: bound(network, steps) for steps in (8, 16, 32)}
    excess = [float(p @ (nats - exact)) for nats in found.values()]
    assert min(excess) > 0.01
    assert excess[1] / excess[0] == pytest.approx(0.5, abs=0.01)
    assert excess[2] / excess[1] == pytest.approx(0.5, abs=0.005)
    extrapolated = 2 * found[32] - found[16]  # without what falls as 1/T, text by text
    left = [float((nats - exact).abs().max()) for nats in (extrapolated, found[32])]
    assert left[0] < 0.1 * left[1]


@pytest.mark.parametrize("alpha", [Linear(), Cosine(), LateCosine()])
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_the_bound_of_one_token_is_exact_at_every_t(
    noise: Noise, alpha: Schedule, steps: int
) -> None:
    truth = enumerated(oracle.markov(V, 1))
    exact = -truth.log_prob(truth.sequences)
    assert_near(bound(ExactTimed(truth, noise, alpha), steps, truth.sequences), exact, share=1e-9)


@pytest.mark.parametrize("noise", NOISES)
def test_in_one_step_all_tokens_are_independent(noise: Noise) -> None:
    p = TRUTH.log_weights.softmax(0)
    one_hot = torch.nn.functional.one_hot(TEXTS, V).double()
    marginals = torch.einsum("k,klv->lv", p, one_hot)
    wanted = -marginals[torch.arange(L), TEXTS].log().sum(dim=1)
    assert_near(bound(ExactTimed(TRUTH, noise), 1), wanted, share=1e-9)


@pytest.mark.parametrize("alpha", [Linear(), LateCosine()])
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("steps", [1, 4])
def test_it_bounds_what_the_reverse_process_generates(
    noise: Noise, alpha: Schedule, steps: int
) -> None:
    """For a network that is wrong, too. One step from masks has a single path: nothing is lost."""
    network = Table(noise, alpha)
    found, generated = bound(network, steps), -chain(network, steps)
    assert float((-generated).exp().sum()) == pytest.approx(1.0)
    gap = found - generated
    assert float(gap.min()) > (-1e-9 if steps == 1 else 1e-3)
    if steps == 1 and noise == "absorbing":
        assert float(gap.max()) < 1e-9


@pytest.mark.parametrize("noise", NOISES)
def test_the_sampler_draws_from_the_process_that_is_bounded(noise: Noise) -> None:
    """timed@T against all transitions written out, for a network that is wrong: χ²."""
    network, n = Table(noise, LateCosine()), 20_000
    end = last(sampler("timed@3"), network, State.blank(n, L), generator=stream(1)).tokens
    counts = (end.unsqueeze(1) == TEXTS).all(dim=-1).sum(dim=0)
    for steps, same in ((3, True), (2, False)):
        wanted = chain(network, steps).exp() * n
        p = chisquare(counts.double(), wanted * n / wanted.sum()).pvalue
        assert p > 1e-4 if same else p < 1e-6


@pytest.mark.parametrize("alpha", [Linear(), LateCosine()])
def test_with_masks_and_ever_more_steps_it_is_roar(alpha: Schedule) -> None:
    """MDLM's bound: whatever the schedule, and for any network that does not need the time."""
    for network, asked in (
        (Table("absorbing", alpha, timeless=True), Table("absorbing", timeless=True)),
        (ExactTimed(TRUTH, "absorbing", alpha), TRUTH),
    ):
        wanted = roar.Enumerated()(asked, TEXTS).nats
        found = {steps: bound(network, steps) for steps in (16, 32)}
        error = [float((nats - wanted).abs().max()) for nats in found.values()]
        assert error[1] < 0.6 * error[0] and error[0] > 0.01
        assert float((2 * found[32] - found[16] - wanted).abs().max()) < 0.05 * error[1]


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(("steps", "power"), [(1, 2.0), (2, 2.0), (6, 1.0), (6, 2.0), (60, 2.0)])
def test_the_estimate_is_the_bound(noise: Noise, steps: int, power: float) -> None:
    """Within its own error, which is small enough to notice a step that is left out."""
    network, texts = Table(noise, Cosine()), TEXTS[[0, 7, 25]].repeat(20, 1)
    found = Vlb(steps, 16, 8, power)(network, texts, generator=stream(2))
    assert network.sequences == 60 * 16 * (9 if steps > 1 else 1)
    assert found.values.shape == (60, 16, L)
    wanted = float(bound(network, steps, texts[:3]).mean())
    assert abs(float(found.nats.mean()) - wanted) < 4 * found.mean_stderr + 1e-9
    assert found.mean_stderr < 0.02 * wanted


def test_the_exact_network_scores_the_truth(truth: oracle.Oracle) -> None:
    """Up to the error: at T = 2000 hardly anything is left of what falls as 1/T."""
    tokens = truth.sample(24, generator=stream(1))
    exact = -truth.log_prob(tokens)
    for noise in NOISES:
        found = Vlb(2000, 8, 15)(ExactTimed(enumerated(truth), noise), tokens, generator=stream(2))
        assert abs(float((found.nats - exact).mean())) < 4 * found.mean_stderr + 2e-3


@pytest.mark.parametrize("noise", NOISES)
def test_a_network_of_another_truth_is_noticed(noise: Noise) -> None:
    other = ExactTimed(enumerated(oracle.markov(V, L, seed=1, sharpness=0.8)), noise)
    texts = TRUTH.sample(32, generator=stream(1))
    found = Vlb(200, 8, 15)(other, texts, generator=stream(2))
    assert float((found.nats + TRUTH.log_prob(texts)).mean()) > 8 * found.mean_stderr


def test_noise_is_drawn_given_that_it_changes_something() -> None:
    """The masks of an absorbing process but the empty set, each as likely as it should be."""
    n, alpha = 20_000, 0.7
    kernel, tokens = Kernel("absorbing", V), torch.ones(n, L, dtype=torch.long)
    noisy, chance = changed(kernel, tokens, torch.full((n,), alpha), generator=stream(0))
    assert float(chance[0]) == pytest.approx(1 - alpha**L)
    sets = torch.tensor(list(product([False, True], repeat=L)))[1:]
    counts = ((noisy == MASK).unsqueeze(1) == sets).all(dim=-1).sum(dim=0)
    p = torch.where(sets, 1 - alpha, alpha).double().prod(dim=1) / (1 - alpha**L)
    assert chisquare(counts.double(), p / p.sum() * n).pvalue > 1e-4
    for alpha, share in ((0.0, 1.0), (1 - 1e-9, 1 / L)):  # all are masked, or one alone
        noisy, _ = changed(
            kernel, tokens, torch.full((n,), alpha, dtype=torch.float64), generator=stream(0)
        )
        assert float((noisy == MASK).double().mean()) == pytest.approx(share)
    assert (changed(kernel, tokens, torch.ones(n))[1] == 0).all()


@pytest.mark.parametrize("noise", NOISES)
def test_a_text_is_scored_alike_in_any_batch(noise: Noise) -> None:
    network, estimator = Table(noise), Vlb(50, 4, 3, batch_size=5)
    whole = estimator(network, TEXTS[:4], generator=Streams.derive(0, range(4)))
    for i in range(4):
        alone = estimator(network, TEXTS[i : i + 1], generator=Streams.derive(0, [i]))
        assert_near(alone.values[0], whole.values[i])


def test_impossible_budgets_and_broken_networks_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 replicates"):
        Vlb(10, 1, 8)
    with pytest.raises(ValueError, match="timesteps and power must be at least 1, got 0 and 2"):
        Vlb(0)
    network = Table("uniform")
    network.rows.fill_(torch.nan)
    with pytest.raises(ValueError, match="NaN logits"):
        Vlb(10)(network, TEXTS[:2], generator=stream(0))
