"""The network with a clock: given an exact denoiser, its sampler and bound must be exact too."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor

from dsl.checkpoints.loading import Model
from dsl.core import oracle
from dsl.core.channel import observe
from dsl.core.denoiser import Clocked, Endpoints, require_clocked
from dsl.core.streams import Streams, stream
from dsl.core.types import MASK
from dsl.families.registry import FAMILIES
from dsl.families.vp import SNR_MIN, VpModel, VpObjective, VpOptions, VpShape
from dsl.generation.engine import generate
from dsl.likelihoods.vdm import VdmBound, prior_nats
from dsl.samplers import clocked
from dsl.samplers.base import last
from dsl.samplers.registry import sampler
from dsl.samplers.state import State
from tests.apps.zoo.test_timed import DRAWS, p_value
from tests.conftest import assert_near
from tests.doubles import Double
from tests.exact_times import enumerated

CONFIG = VpShape(
    5, codebook_dim=4, hidden_dim=16, cond_dim=4, n_blocks=2, n_heads=2, dropout=0.0, snr_max=30.0
)
VP = FAMILIES["vp"]
TOKENS = torch.randint(5, (64, 6), generator=torch.Generator().manual_seed(0))


CHAIN, FOUR = enumerated(oracle.markov(3, 3, sharpness=0.8)), oracle.markov(4, 3, sharpness=0.8)
RANGES = {"vp": (1e-3, 60.0), "plaid": (math.exp(-6), math.exp(3)), "cdcd": (256 / 300**2, 64.0)}
"""The SNRs of the families that are walked by vp@T."""


class Steered(Double):
    """An exact denoiser that is told the SNR and does not need it."""

    snr_range = (1e-3, 60.0)
    snr_max = 60.0

    def __init__(self, truth: oracle.Oracle) -> None:
        self.truth = truth
        self.sequences = 0
        self.told: list[tuple[Tensor, Tensor]] = []

    @property
    def codebook(self) -> Tensor:  # type: ignore[override]
        return self.truth.codebook

    def at_snr(self, z: Tensor, snr: Tensor) -> Tensor:
        self.sequences += len(z)
        self.told.append((z, snr))
        return self.truth(z.to(self.codebook))

    def __call__(self, z: Tensor | Endpoints, /, *, at: Tensor | None = None) -> Tensor:
        raise AssertionError("a network with a clock is asked at an SNR")


def network() -> VpModel:
    model = VpModel(CONFIG).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def test_the_bound_of_an_exact_denoiser_is_the_truth(truth: oracle.Oracle) -> None:
    tokens = truth.sample(6, generator=stream(1))
    estimate = VdmBound(replicates=16, draws=64)(Steered(truth), tokens, generator=stream(2))
    exact = -truth.log_prob(tokens)
    prior = tokens.shape[1] * prior_nats(1e-3, truth.codebook.shape[1])
    error = 4 * float(estimate.stderr.square().sum().sqrt()) / 6
    assert abs(float((estimate.nats - exact).mean()) - prior) < error + 0.005


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("family", RANGES)
def test_at_the_snrs_of_each_family_it_is_so_within_a_few_hundredths(
    family: str, seed: int
) -> None:
    """The network of another distribution gives that one's −log P: a wrong one is noticed."""
    truth, tokens = (
        oracle.markov(4, 3, seed=seed, sharpness=0.8),
        FOUR.sample(200, generator=stream(1)),
    )
    network = Steered(truth)
    network.snr_range = RANGES[family]
    found = VdmBound(replicates=8, draws=64)(network, tokens, generator=stream(2))
    prior = 3 * prior_nats(network.snr_range[0], truth.codebook.shape[1])
    error = 4 * float(found.stderr.square().sum().sqrt()) / len(tokens)
    exact = -float(truth.log_prob(tokens).mean())
    assert abs(float(found.nats.mean()) - prior - exact) < error < 0.04 * exact
    assert abs(exact + float(FOUR.log_prob(tokens).mean())) > 1 or seed == 0


def test_the_objective_is_the_bound() -> None:
    """Two routes to one number: the training loss of one text, and the estimator less the prior."""
    model, tokens = network(), TOKENS[:1]
    batch = tokens.expand(64, -1)  # the strata belong to places of the batch
    objective = VpObjective(model, VpOptions())
    with torch.no_grad():
        draws = torch.stack([
            objective(batch, Streams.derive(s, range(64)), range(64), 64).mean
            for s in range(150)
        ])  # fmt: skip
    bound = VdmBound(replicates=64, draws=64)(model, tokens, generator=stream(0))
    per_token = bound.nats.mean() / 6 - prior_nats(1e-3, 4)
    error = (float(draws.std()) ** 2 / 150 + (bound.mean_stderr / 6) ** 2) ** 0.5
    assert abs(float(draws.mean()) - float(per_token)) < 4 * error


def test_the_prior_term_is_small_and_grows_with_the_first_snr() -> None:
    assert prior_nats(1e-3, 26) == pytest.approx(0.5e-3, rel=0.05)
    assert prior_nats(0.0, 26) == 0
    assert prior_nats(1.0, 26) > 1


def test_the_network_hears_its_clock_and_only_its_own_samplers_serve_it() -> None:
    model = network()
    assert isinstance(model, Clocked)
    z = torch.randn(2, 6, 4)
    one, two = model.at_snr(z, torch.tensor([1.0, 1.0])), model.at_snr(z, torch.tensor([1.0, 4.0]))
    assert_near(one[0], two[0])
    assert (one[1] - two[1]).abs().max() > 0.01
    with pytest.raises(ValueError, match=r"asks a Prefixed: .* Samplers that fit: vp@T, vp-ode@T$"):
        generate(Model("mine", model, None, 6, VP), sampler="causal")
    with pytest.raises(ValueError, match="asks a Clocked"):
        generate("oracle:markov", sampler="vp@4")
    with pytest.raises(ValueError, match="a network with an SNR input"):
        require_clocked(oracle.markov(6, 8))


def test_untrained_its_bound_charges_the_whole_of_the_state() -> None:
    """A posterior mean of 0 errs by ‖x‖² = 1 at every SNR, and the read-out is uniform."""
    model = VpModel(replace(CONFIG, codebook="simplex")).eval()
    found = VdmBound(replicates=16, draws=64)(model, TOKENS[:4], generator=stream(0))
    wanted = prior_nats(SNR_MIN, 4) + 0.5 * (30 - SNR_MIN) + math.log(5)
    error = 4 * found.mean_stderr / 6
    assert abs(float(found.nats.mean()) / 6 - wanted) < error + 1e-4


def test_levels_stay_within_the_clock() -> None:
    model = network()
    assert all(SNR_MIN <= level.label <= 30 for level in VP.levels(model))  # type: ignore[operator]
    with pytest.raises(
        ValueError, match=r"the network's SNRs lie in 0.001 … 30, got \[1.0, 31.0\]"
    ):
        VP.levels_at(model, [1.0, 31.0])


def test_the_input_has_unit_variance_at_every_snr() -> None:
    model = VpModel(VpShape(27, codebook_dim=26, hidden_dim=16, n_blocks=1, n_heads=2))
    seen: list[Tensor] = []
    model.project.register_forward_hook(lambda _, given, __: seen.append(given[0]))
    x = model.codebook[torch.randint(27, (16, 200))]
    for gamma in (0.01, 1.0, 30.0):
        z = observe(x, torch.full((16, 200), gamma), generator=stream(0))
        model.at_snr(z, torch.full((16,), gamma))
        assert float(seen[-1].detach().square().mean()) == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("family", RANGES)
def test_with_an_exact_denoiser_the_sampler_draws_from_the_model(family: str) -> None:
    network = Steered(CHAIN)
    network.snr_range = RANGES[family]
    end = last(sampler("vp@64"), network, State.blank(DRAWS, 3), generator=stream(3))
    assert p_value(CHAIN, end.tokens) > 1e-4
    assert network.sequences == 64 * DRAWS


def test_wrong_noise_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same test fails for steps with too little noise: it can fail."""

    def less(x: Tensor, snr: Tensor, **options: Any) -> Tensor:
        return snr.unsqueeze(-1) * x + 0.7 * (observe(x, snr, **options) - snr.unsqueeze(-1) * x)

    monkeypatch.setattr(clocked, "observe", less)
    end = last(sampler("vp@64"), Steered(CHAIN), State.blank(DRAWS, 3), generator=stream(3))
    assert p_value(CHAIN, end.tokens) < 1e-9


def test_a_wrong_network_is_noticed() -> None:
    other = Steered(enumerated(oracle.markov(3, 3, seed=1, sharpness=0.8)))
    end = last(sampler("vp@64"), other, State.blank(DRAWS, 3), generator=stream(3))
    assert p_value(CHAIN, end.tokens) < 1e-9


def test_it_walks_like_every_sampler() -> None:
    start = torch.full((3, 6), MASK)
    start[0, 2], start[1] = 4, torch.arange(6) % 5
    state = State.start(start)
    path, model = sampler("vp@5"), network()
    states = list(path.steps(model, state, generator=Streams.derive(0, range(3))))
    assert [reached.step for reached in states] == [1, 2, 3, 4, 5]
    end = states[-1]
    assert not end.masked.any() and end.z is None
    assert torch.equal(end.tokens[state.fixed], start[state.fixed])
    assert end.nfe.tolist() == [5, 0, 5]
    streams = Streams.derive(0, range(3))
    head = list(islice(path.steps(model, state, generator=streams), 2))
    rest = list(path.steps(model, head[-1], generator=streams))
    assert torch.equal(rest[-1].tokens, end.tokens)
    alone = last(path, model, State.start(start[2:]), generator=Streams.derive(0, [2]))
    assert torch.equal(alone.tokens, end.tokens[2:])
    assert not list(path.steps(model, end, generator=streams))


def test_the_clock_tells_the_snr_the_state_has() -> None:
    """Step by step along the grid, and a pinned token's state has that SNR too."""
    truth = Steered(oracle.cyclic(5))
    start = torch.full((400, 5), MASK)
    start[:, 0] = 2
    last(sampler("vp@6"), truth, State.start(start), generator=stream(0))
    grid = [1e-3 + (60 - 1e-3) * (k / 5) ** 2 for k in range(6)]
    assert [float(snr[0]) for _, snr in truth.told] == pytest.approx(grid, rel=1e-5)
    x = truth.codebook[2].float()
    for z, snr in truth.told:
        gamma = float(snr[0])
        pinned = z[:, 0] - gamma * x
        assert float(pinned.square().mean()) == pytest.approx(gamma, rel=0.12)
        assert float(pinned.mean(dim=0).abs().max()) < 5 * (gamma / 400) ** 0.5
