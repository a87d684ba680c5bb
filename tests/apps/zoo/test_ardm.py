"""ARDM: its objective is ROAR's bound, and it learns what a token costs it."""

from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path

import pytest
import torch
from torch import Tensor

from dsl.apps.zoo.ardm import ArdmModel, ArdmObjective, ArdmOptions
from dsl.core import oracle
from dsl.core.denoiser import Endpoints
from dsl.core.streams import Streams, stream
from dsl.core.types import Tokens
from dsl.families import registry as table
from dsl.families.mdlm import MdlmModel, MdlmShape
from dsl.families.registry import FAMILIES
from dsl.likelihoods.roar import Enumerated, masked_losses
from dsl.samplers.base import last
from dsl.samplers.registry import sampler
from dsl.samplers.state import State
from tests.conftest import assert_near
from tests.families.conftest import LENGTH, TOKENS, awake, untrained

ARDM = FAMILIES["ardm"]
TIMES = 60


class Exact(ArdmModel):
    """An oracle in the place of the network."""

    def __init__(self, truth: oracle.Oracle) -> None:
        v, length = len(truth.codebook), truth.length
        super().__init__(
            MdlmShape(v, model_length=length, hidden_dim=8, cond_dim=4, n_blocks=1, n_heads=2)
        )
        self.truth = truth

    def forward(self, z: Tensor | Endpoints, /, *, at: Tensor | None = None) -> Tensor:
        return self.truth(z, at=at)


@torch.no_grad()
def losses(objective: ArdmObjective, text: Tokens, times: int = TIMES) -> Tensor:
    """Draw the loss of a batch of one text many times, learning from each."""
    places, found = range(32), []
    for seed in range(times):
        loss = objective(text.expand(32, -1), Streams.derive(seed, places), places, 32)
        assert loss.learned is not None
        objective.learn(loss.learned)
        found.append(loss.mean)
    return torch.stack(found)


def test_its_objective_is_the_bound() -> None:
    """Two routes to one number: the training loss of a text, and ROAR by enumeration."""
    network, text = awake(ARDM), TOKENS[:1]
    drawn = losses(ArdmObjective(network, ArdmOptions()), text)
    exact = Enumerated()(network, text).nats / LENGTH
    assert abs(float(drawn.mean() - exact)) < 4 * float(drawn.std()) / TIMES**0.5
    assert float(drawn.std()) > 0


def test_of_an_exact_network_it_is_the_truth() -> None:
    truth = oracle.markov(3, 5)
    text = truth.sample(1, generator=stream(4))
    drawn = losses(ArdmObjective(Exact(truth), ArdmOptions()), text)
    error = float(drawn.std()) / TIMES**0.5
    assert abs(5 * float(drawn.mean()) + float(truth.log_prob(text))) < 4 * 5 * error


def test_every_place_of_the_batch_has_its_own_number_of_known_tokens() -> None:
    """With as many places as tokens, place k shows k of them, in every step."""
    network, seen = untrained(ARDM), []
    network.backbone.vocab_embed.register_forward_hook(lambda _, given, __: seen.append(given[0]))
    objective = ArdmObjective(network, ArdmOptions())
    for seed in range(3):
        objective(TOKENS[:LENGTH], Streams.derive(seed, range(LENGTH)), range(LENGTH), LENGTH)
        assert (seen[-1] != 5).sum(dim=1).tolist() == list(range(LENGTH))
    assert not torch.equal(seen[0] == 5, seen[1] == 5)


def test_it_learns_what_a_token_costs() -> None:
    """Averaged over the sets of k known tokens, by enumeration."""
    network, text = awake(ARDM), TOKENS[:1]
    even = network.loss_by_known
    assert_near(even, 1 - torch.arange(6) / 6)  # until every k has been seen
    losses(ArdmObjective(network, ArdmOptions(decay=0.9999)), text)
    means, spread = [], []
    for k in range(LENGTH):
        shown = torch.zeros(math.comb(LENGTH, k), LENGTH, dtype=torch.bool)
        for row, chosen in zip(shown, combinations(range(LENGTH), k), strict=True):
            row[list(chosen)] = True
        each = masked_losses(network, text.expand(len(shown), -1), shown, 64).sum(1) / (LENGTH - k)
        means.append(float(each.mean()))
        spread.append(float(each.std(correction=0)))
    own = (network.known_losses / network.known_counts).tolist()
    for found, mean, std in zip(own, means, spread, strict=True):
        assert abs(found - mean) < 4 * std / (TIMES * 32 / 6) ** 0.5 + 1e-4
    profile = network.loss_by_known
    assert (profile.diff() <= 0).all()
    assert float(profile.mean()) == pytest.approx(sum(own) / 6, rel=1e-2)


def test_what_it_learned_is_kept_and_used(tmp_path: Path) -> None:
    """After one token of a cycle nothing costs anything: two steps draw from it without fault."""
    cycle = oracle.cyclic(6)
    network = Exact(cycle)
    losses(ArdmObjective(network, ArdmOptions()), cycle.sequences[:1], 8)
    wanted = torch.tensor([math.log(6)] + [0.0] * 5)
    assert_near(network.loss_by_known, wanted)
    end = last(sampler("ardm@2"), network, State.blank(300, 6), generator=stream(3))
    assert cycle.log_prob(end.tokens).isfinite().all()
    ARDM.write(network, tmp_path)
    again = table.read(tmp_path)[1]
    assert_near(again.loss_by_known, wanted)


def test_its_weights_are_mdlms() -> None:
    shape = ARDM.shape(5, LENGTH, {"hidden_dim": 16, "n_blocks": 1, "n_heads": 2})
    ours, theirs = ARDM.build(shape), MdlmModel(shape)  # type: ignore[arg-type]
    named = {name: p.shape for name, p in theirs.named_parameters()}
    assert {name: p.shape for name, p in ours.named_parameters()} == named


def test_a_decay_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"decay must lie in \[0, 1\), got 1.0"):
        ArdmOptions(decay=1.0)
