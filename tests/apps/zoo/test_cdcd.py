"""CDCD: cross-entropy at every SNR, with time warping."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from dsl.apps.zoo.cdcd import CdcdObjective, CdcdOptions
from dsl.apps.zoo.plaid import PlaidModel
from dsl.core import oracle
from dsl.core.channel import observe
from dsl.core.denoiser import settled
from dsl.core.streams import Streams, stream
from dsl.families.objective import Loss
from dsl.families.registry import FAMILIES
from dsl.likelihoods.vdm import VdmBound, prior_nats
from tests.families.conftest import TOKENS, awake, untrained
from tests.families.test_vp import Steered

CDCD = FAMILIES["cdcd"]
PLACES = range(64)


def loss(made: CdcdObjective, seed: int) -> Loss:
    with torch.no_grad():
        found: Loss = made(TOKENS, Streams.derive(seed, PLACES), PLACES, 64)
    return found


def knowing() -> PlaidModel:
    """A network that applies Bayes' rule to every state: its loss falls from log v to 0."""
    made: PlaidModel = untrained(
        FAMILIES["plaid"], snr_min=CDCD.Shape(5).snr_min, snr_max=64.0, learn_range=False
    )  # type: ignore[attr-defined]
    return made


def test_its_range_is_that_of_noise_on_embeddings_of_norm_16() -> None:
    low, high = untrained(CDCD).snr_range
    assert (16 / low**0.5, 16 / high**0.5) == pytest.approx((300.0, 2.0))


def test_untrained_its_loss_is_log_v_at_every_snr() -> None:
    made = CdcdObjective(untrained(CDCD), CdcdOptions())
    found = [float(loss(made, seed).mean) for seed in range(3)]
    assert found == pytest.approx([math.log(5)] * 3, rel=1e-5)


@torch.no_grad()
def entropies(network: PlaidModel, rounds: int = 12) -> Tensor:
    """The mean loss of TOKENS at log-uniform SNRs, several times."""
    low, high = network.snr_range
    means = []
    for seed in range(rounds):
        s = (torch.arange(64) + torch.rand(64, generator=stream(seed, 1))) / 64
        snr = low * (high / low) ** s[torch.randperm(64, generator=stream(seed, 2))]
        z = observe(network.codebook[TOKENS], snr.unsqueeze(1).expand(64, 6),
                    generator=stream(seed, 3))  # fmt: skip
        logits = settled(network, z, snr)
        means.append(torch.nn.functional.cross_entropy(logits.flatten(0, 1), TOKENS.flatten()))
    return torch.stack(means)


@pytest.mark.parametrize("learned", [False, True])
def test_the_weighted_loss_is_that_of_log_uniform_snrs(learned: bool) -> None:
    """Two routes to one number, before and after the distribution is learned."""
    network = knowing()
    made = CdcdObjective(network, CdcdOptions(weighted=True, bins=16, told=1.0))
    if learned:
        for seed in range(12):
            sums = loss(made, seed).learned
            assert sums is not None
            made.learn(sums)
        assert float(made.warp.mass.max()) > 3 / 16
    found = torch.stack([loss(made, 100 + seed).mean for seed in range(30)])
    wanted = entropies(network)
    error = (float(found.std()) ** 2 / 30 + float(wanted.std()) ** 2 / len(wanted)) ** 0.5
    assert abs(float(found.mean()) - float(wanted.mean())) < 4 * error
    assert error < 0.05


def test_with_the_learned_distribution_the_loss_is_linear_in_u() -> None:
    """Time warping: as a function of u the cross-entropy is a straight line."""
    network = knowing()
    made = CdcdObjective(network, CdcdOptions(bins=32))
    for seed in range(25):
        sums = loss(made, seed).learned
        assert sums is not None
        made.learn(sums)
    sums, counts = torch.zeros(4), torch.zeros(4)
    for seed in range(8):  # places are strata of u: a quarter of the batch is a quarter of u
        for k in range(4):
            rows = range(16 * k, 16 * k + 16)
            with torch.no_grad():
                part = made(TOKENS[rows.start : rows.stop], Streams.derive(500 + seed, rows),
                            rows, 64)  # fmt: skip
            sums[k] += part.sum
            counts[k] += part.count
    found = (sums / counts).tolist()
    wanted = [math.log(5) * (1 - (k + 0.5) / 4) for k in range(4)]
    assert found == pytest.approx(wanted, abs=0.15)
    even = CdcdObjective(network, CdcdOptions(bins=32))
    assert float(loss(even, 0).mean) != pytest.approx(math.log(5) / 2, abs=0.1)


def test_the_learned_distribution_is_saved_with_the_objective() -> None:
    made = CdcdObjective(awake(CDCD), CdcdOptions(bins=4))
    assert set(made.own()) == {"warp.losses", "warp.counts", "warp.mass"}
    made.learn(torch.tensor([4.0, 3.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0]).double())
    assert made.own()["warp.mass"].tolist() != [0.25] * 4


def test_with_its_range_the_bound_of_an_exact_denoiser_is_the_truth() -> None:
    truth = oracle.cyclic(5)
    network = Steered(truth)
    network.snr_range = untrained(CDCD).snr_range
    tokens = truth.sample(6, generator=stream(1))
    found = VdmBound(16, 64)(network, tokens, generator=stream(2))
    low = network.snr_range[0]
    prior = tokens.shape[1] * prior_nats(low, truth.codebook.shape[1])
    gap = float((found.nats + truth.log_prob(tokens)).mean()) - prior
    assert abs(gap) < 4 * found.mean_stderr + 5 * low / 2
