"""D3PM and multinomial diffusion: objective and bound, mostly by enumeration of noisy states."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from dsl.apps.zoo.d3pm import D3pmObjective, D3pmOptions, D3pmShape, Vlb, changed, step_nats
from dsl.apps.zoo.kernel import Kernel, Noise
from dsl.apps.zoo.timed import Timed
from dsl.core import oracle
from dsl.core.alpha import Cosine, LateCosine, Linear, Schedule
from dsl.core.denoiser import Endpoints
from dsl.core.streams import Streams, stream
from dsl.core.types import MASK
from dsl.families.base import Family
from dsl.families.objective import Loss
from dsl.families.registry import FAMILIES
from dsl.generation.engine import generate
from dsl.likelihoods import roar
from dsl.likelihoods.estimate import Effort
from dsl.samplers.base import last
from dsl.samplers.registry import sampler
from dsl.samplers.state import State
from tests.conftest import assert_near
from tests.doubles import Double
from tests.exact_times import ExactTimed, enumerated
from tests.families.conftest import LENGTH, TOKENS, VOCABULARY, awake, loaded, untrained

D3PM, MULTINOMIAL = FAMILIES["d3pm"], FAMILIES["multinomial"]
BOTH = pytest.mark.parametrize("family", [D3PM, MULTINOMIAL], ids=lambda family: family.name)


def loss(network: Any, tokens: torch.Tensor, hybrid: float, seed: int = 0) -> Loss:
    places = range(len(tokens))
    objective = D3pmObjective(network, D3pmOptions(hybrid))
    found: Loss = objective(tokens, Streams.derive(seed, places), places, len(tokens))
    return found


@BOTH
@torch.no_grad()
def test_the_objective_is_the_bound(family: Family) -> None:
    """Two routes to one number: the training loss of one text, and the estimator."""
    network, tokens = awake(family, timesteps=25), TOKENS[:1]
    batch = tokens.expand(64, -1)  # the strata belong to places of the batch
    draws = torch.stack([loss(network, batch, 0.0, seed).mean for seed in range(36)])
    found = Vlb(25, replicates=32, draws=24)(network, tokens, generator=stream(0))
    error = math.hypot(float(draws.std()) / 6, found.mean_stderr / LENGTH)
    assert abs(float(draws.mean()) - float(found.nats[0]) / LENGTH) < 4 * error
    assert error < 0.05 * float(draws.mean())


@BOTH
@torch.no_grad()
def test_the_hybrid_loss_adds_the_auxiliary_term_to_every_step(family: Family) -> None:
    """KL + λ CE of a step, in the units of the bound, divided by the sum of the weights."""
    network = awake(family)
    plain, hybrid = loss(network, TOKENS, 0.0), loss(network, TOKENS, 0.01)
    (bound, n), (direct, same) = hybrid.parts["all"], hybrid.parts["direct"]
    assert n == same == TOKENS.numel()
    assert_near(bound, plain.sum)
    assert_near(hybrid.sum, (bound + 0.01 * 1000 * direct) / (1 + 0.01 * 1000))
    assert float(direct) > 0 and "direct" not in plain.parts


@pytest.mark.parametrize("noise", ["absorbing", "uniform"])
def test_the_auxiliary_term_has_the_optimum_of_the_bound(noise: Noise) -> None:
    """The posterior at s = 0 of the exact x̂_0 is that of the clean token, by enumeration.

    A cross-entropy of x̂_0 itself would want another under uniform noise: one that has seen the
    position's own token, which the kernel adds once more.
    """
    truth = enumerated(oracle.markov(3, 3, sharpness=0.8))
    network = ExactTimed(truth, noise)
    noisy = torch.tensor(list(product([0, 1, 2 if noise == "uniform" else MASK], repeat=3)))
    t = torch.full((27,), 0.4, dtype=torch.float64)
    alpha_t = network.alpha(t)
    clean = network.at_time(noisy, t).softmax(dim=-1)
    found = network.kernel.posterior(noisy, clean, alpha_t, torch.ones_like(alpha_t))[..., :3]
    weight = network.joint(noisy, t)[0].softmax(dim=-1)
    onto = torch.nn.functional.one_hot(truth.sequences, 3).double()
    wanted = torch.einsum("bk,klv->blv", weight, onto)
    assert_near(found, wanted, share=1e-9)
    assert float((clean - wanted).abs().max()) > 0.1


@BOTH
@torch.no_grad()
def test_every_step_is_trained_equally_often(family: Family) -> None:
    """A batch of size T has each step once, and the network's time is t = k/T."""
    network = awake(family, timesteps=64)
    told: list[torch.Tensor] = []
    ask = network.at_time
    network.at_time = lambda tokens, t: told.append(t) or ask(tokens, t)
    loss(network, TOKENS, 0.0)
    assert_near(64 * told[0], torch.arange(1, 65).double(), share=1e-12)


def test_the_defaults_are_those_of_the_papers() -> None:
    masks, tokens = untrained(D3PM), untrained(MULTINOMIAL)
    assert isinstance(masks, Timed) and isinstance(tokens, Timed)
    assert (masks.kernel.noise, masks.alpha) == ("absorbing", Linear())
    assert (tokens.kernel.noise, tokens.alpha) == ("uniform", LateCosine())
    assert masks.config.timesteps == tokens.config.timesteps == 1000
    assert (D3PM.Options().hybrid, MULTINOMIAL.Options().hybrid) == (0.01, 0.0)


def test_the_linear_schedule_masks_the_same_number_in_every_step() -> None:
    """D3PM's β_k = 1/(T - k + 1)."""
    k = torch.arange(1, 11).double()
    alpha_t, alpha_s = Linear()(k / 10), Linear()((k - 1) / 10)
    assert_near(1 - alpha_t / alpha_s, 1 / (10 - k + 1), share=1e-12)


@BOTH
def test_it_has_the_weights_of_mdlm(family: Family) -> None:
    assert {n: p.shape for n, p in untrained(family).named_parameters()} == {
        n: p.shape for n, p in untrained(FAMILIES["mdlm"]).named_parameters()
    }


@BOTH
def test_untrained_its_bound_is_the_uniform_one(family: Family) -> None:
    """A uniform x̂_0 is exact for independent uniform tokens: log v per token for any T."""
    found = Vlb(50, 16, 15)(untrained(family), TOKENS[:16], generator=stream(0))
    per_token, error = float(found.nats.mean()) / LENGTH, found.mean_stderr / LENGTH
    assert abs(per_token - math.log(VOCABULARY)) < 4 * error
    assert error < 0.02 * per_token


@BOTH
@pytest.mark.parametrize("schedule", ["linear", "cosine", "late-cosine", "polynomial"])
@pytest.mark.parametrize("noise", ["absorbing", "uniform"])
def test_gradients_are_finite_at_every_step(family: Family, schedule: str, noise: Noise) -> None:
    """With t^100 some steps change nothing, and T = 1 has a single step."""
    for steps in (1, 64):
        network = awake(family, noise=noise, schedule=schedule, power=100.0, timesteps=steps)
        found = loss(network, TOKENS, 0.01)
        found.sum.backward()
        assert found.sum.isfinite() and float(found.sum.detach()) > 0
        assert all(p.grad.isfinite().all() for p in network.parameters())


@BOTH
def test_it_learns(family: Family) -> None:
    """A constant text is learned in a few steps, and then generated."""
    torch.manual_seed(0)
    network = untrained(family, timesteps=20)
    text = torch.full((LENGTH,), 3)
    objective = family.objective(network, family.Options())
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    for seed in range(30):
        optimizer.zero_grad()
        streams = Streams.derive(seed, range(16))
        objective(text.expand(16, -1), streams, range(16), 16).mean.backward()
        optimizer.step()
    (estimator,) = family.estimators(network, Effort(64))
    nats = float(estimator(network, text.unsqueeze(0), generator=stream(0)).nats) / LENGTH
    assert nats < 0.2 * math.log(VOCABULARY)
    made = replace(loaded(family), denoiser=network)
    drawn = "".join(sample.text for sample in generate(made, 8, sampler="timed@20"))
    assert drawn.count("d") > 0.9 * len(drawn)


def test_invalid_shapes_and_options_are_refused() -> None:
    with pytest.raises(ValueError, match=r"timesteps must lie in 1 … 1,000,000, got 0"):
        D3pmShape(5, timesteps=0)
    with pytest.raises(ValueError, match=r"hybrid must lie in \[0, 1e6\], got -1"):
        D3pmOptions(hybrid=-1.0)
    with pytest.raises(ValueError, match=r"expected .*late-cosine"):
        D3PM.shape(5, 6, {"schedule": "sudden"})
    sizes = {"hidden_dim": 16, "n_blocks": 1, "n_heads": 4, "llama": {"mlp_dim": 8}}
    assert D3PM.shape(7, 6, sizes).llama is None
    with pytest.raises(ValueError, match="llama blocks have none"):
        D3pmShape.from_dict({"vocab_size": 7, **sizes})


V, L = 3, 3
NOISES: list[Noise] = ["absorbing", "uniform"]
TRUTH = enumerated(oracle.markov(V, L, sharpness=0.8))
TEXTS = TRUTH.sequences


class Table(Double):
    """A wrong network: random logits for every state of a text."""

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
    """Multiply the transition matrices of all T reverse steps; return log p of every text."""
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
    """The closed form against the kernel's rows; at s = 0 it is -log p of the clean token."""
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
    """A step treats positions as independent, which costs of order 1/T² per step."""
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
    """Also for a wrong network. One step from masks has a single path, so it is exact."""
    network = Table(noise, alpha)
    found, generated = bound(network, steps), -chain(network, steps)
    assert float((-generated).exp().sum()) == pytest.approx(1.0)
    gap = found - generated
    assert float(gap.min()) > (-1e-9 if steps == 1 else 1e-3)
    if steps == 1 and noise == "absorbing":
        assert float(gap.max()) < 1e-9


@pytest.mark.parametrize("noise", NOISES)
def test_the_sampler_draws_from_the_process_that_is_bounded(noise: Noise) -> None:
    """χ² of timed@T against the transition matrices, for a wrong network."""
    network, n = Table(noise, LateCosine()), 20_000
    end = last(sampler("timed@3"), network, State.blank(n, L), generator=stream(1)).tokens
    counts = (end.unsqueeze(1) == TEXTS).all(dim=-1).sum(dim=0)
    for steps, same in ((3, True), (2, False)):
        wanted = chain(network, steps).exp() * n
        p = chisquare(counts.double(), wanted * n / wanted.sum()).pvalue
        assert p > 1e-4 if same else p < 1e-6


@pytest.mark.parametrize("alpha", [Linear(), LateCosine()])
def test_with_masks_it_converges_to_roar(alpha: Schedule) -> None:
    """MDLM's bound, for any schedule and any network without a time input."""
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
    """Within its own error, which is small enough to notice a missing step."""
    network, texts = Table(noise, Cosine()), TEXTS[[0, 7, 25]].repeat(20, 1)
    found = Vlb(steps, 16, 8, power)(network, texts, generator=stream(2))
    assert network.sequences == 60 * 16 * (9 if steps > 1 else 1)
    assert found.values.shape == (60, 16, L)
    wanted = float(bound(network, steps, texts[:3]).mean())
    assert abs(float(found.nats.mean()) - wanted) < 4 * found.mean_stderr + 1e-9
    assert found.mean_stderr < 0.02 * wanted


def test_the_exact_network_scores_the_truth(truth: oracle.Oracle) -> None:
    """At T = 2000 the discretisation error is negligible."""
    tokens = truth.sample(24, generator=stream(1))
    exact = -truth.log_prob(tokens)
    for noise in NOISES:
        found = Vlb(2000, 8, 15)(ExactTimed(enumerated(truth), noise), tokens, generator=stream(2))
        assert abs(float((found.nats - exact).mean())) < 4 * found.mean_stderr + 2e-3


@pytest.mark.parametrize("noise", NOISES)
def test_a_wrong_network_costs_more(noise: Noise) -> None:
    other = ExactTimed(enumerated(oracle.markov(V, L, seed=1, sharpness=0.8)), noise)
    texts = TRUTH.sample(32, generator=stream(1))
    found = Vlb(200, 8, 15)(other, texts, generator=stream(2))
    assert float((found.nats + TRUTH.log_prob(texts)).mean()) > 8 * found.mean_stderr


def test_noise_is_drawn_given_at_least_one_mask() -> None:
    """χ² of all non-empty sets of masks."""
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
def test_a_score_does_not_depend_on_the_batch(noise: Noise) -> None:
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
