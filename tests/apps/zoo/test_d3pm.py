"""D3PM and multinomial diffusion: their objective is their bound, and what the papers state."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch

from dsl.apps.zoo.d3pm import D3pmObjective, D3pmOptions, D3pmShape, Vlb
from dsl.apps.zoo.kernel import Noise
from dsl.apps.zoo.protocols import Timed
from dsl.core import oracle
from dsl.core.alpha import LateCosine, Linear
from dsl.core.streams import Streams, stream
from dsl.core.types import MASK
from dsl.families.base import Family
from dsl.families.objective import Loss
from dsl.families.registry import FAMILIES
from dsl.generation.engine import generate
from dsl.likelihoods.estimate import Effort
from tests.conftest import assert_near
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
def test_the_auxiliary_term_wants_the_same_network_as_the_bound(noise: Noise) -> None:
    """Read off at once, the exact x̂_0 is the posterior of the clean token, by enumeration.

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
    """A batch as large as T has each step once, and the network is told t = k/T."""
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


def test_the_linear_schedule_masks_one_of_those_left_in_every_step() -> None:
    """β_k = 1/(T - k + 1): D3PM's, for which as much is forgotten in each step."""
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
    """A uniform x̂_0 is exact for uniform, independent tokens: log v of each, whatever T."""
    found = Vlb(50, 16, 15)(untrained(family), TOKENS[:16], generator=stream(0))
    per_token, error = float(found.nats.mean()) / LENGTH, found.mean_stderr / LENGTH
    assert abs(per_token - math.log(VOCABULARY)) < 4 * error
    assert error < 0.02 * per_token


@BOTH
@pytest.mark.parametrize("schedule", ["linear", "cosine", "late-cosine", "polynomial"])
@pytest.mark.parametrize("noise", ["absorbing", "uniform"])
def test_gradients_are_finite_at_every_step(family: Family, schedule: str, noise: Noise) -> None:
    """Under t^100 some steps change nothing at all, and T = 1 has nothing but one."""
    for steps in (1, 64):
        network = awake(family, noise=noise, schedule=schedule, power=100.0, timesteps=steps)
        found = loss(network, TOKENS, 0.01)
        found.sum.backward()
        assert found.sum.isfinite() and float(found.sum.detach()) > 0
        assert all(p.grad.isfinite().all() for p in network.parameters())


@BOTH
def test_it_learns(family: Family) -> None:
    """A letter that is always the same is learned in a few steps, and then generated."""
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


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"timesteps must lie in 1 … 1,000,000, got 0"):
        D3pmShape(5, timesteps=0)
    with pytest.raises(ValueError, match=r"hybrid must lie in \[0, 1e6\], got -1"):
        D3pmOptions(hybrid=-1.0)
    with pytest.raises(ValueError, match=r"expected .*late-cosine"):
        D3PM.shape(5, 6, {"schedule": "sudden"})
    sizes = {"hidden_dim": 16, "n_blocks": 1, "n_heads": 4, "llama": {"mlp_dim": 8}}
    assert D3PM.shape(7, 6, sizes).llama is None
    with pytest.raises(ValueError, match="read no clock"):
        D3pmShape.from_dict({"vocab_size": 7, **sizes})
