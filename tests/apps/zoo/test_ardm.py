"""ARDM: its objective is ROAR's bound; its sampler's plan against brute force."""

from __future__ import annotations

import math
from itertools import combinations, pairwise, permutations
from pathlib import Path

import pytest
import torch
from torch import Tensor

from dsl.apps.zoo.ardm import (
    ArdmModel,
    ArdmObjective,
    ArdmOptions,
    Parallel,
    Profiled,
    budget,
    profile,
)
from dsl.conditioning.padding import padded
from dsl.core import oracle
from dsl.core.denoiser import Denoiser, Endpoints
from dsl.core.streams import Streams, stream
from dsl.core.types import MASK, Tokens
from dsl.families import registry as table
from dsl.families.mdlm import MdlmModel, MdlmShape
from dsl.families.registry import FAMILIES
from dsl.likelihoods.roar import Enumerated, masked_losses
from dsl.samplers.base import last
from dsl.samplers.registry import sampler
from dsl.samplers.state import State
from tests.apps.zoo.test_timed import DRAWS, p_value
from tests.conftest import assert_near
from tests.doubles import Double
from tests.families.conftest import LENGTH, TOKENS, awake, untrained

ARDM = FAMILIES["ardm"]
TIMES = 40


class Exact(ArdmModel):
    """An oracle instead of the network."""

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
    """Return many losses of a batch of one text, and update the running losses with each."""
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


def test_for_an_exact_network_it_is_the_truth() -> None:
    truth = oracle.markov(3, 5)
    text = truth.sample(1, generator=stream(4))
    drawn = losses(ArdmObjective(Exact(truth), ArdmOptions()), text)
    error = float(drawn.std()) / TIMES**0.5
    assert abs(5 * float(drawn.mean()) + float(truth.log_prob(text))) < 4 * 5 * error


def test_every_place_of_the_batch_has_its_own_number_of_known_tokens() -> None:
    """With as many places as tokens, place k has k known tokens in every step."""
    network, seen = untrained(ARDM), []
    network.backbone.vocab_embed.register_forward_hook(lambda _, given, __: seen.append(given[0]))
    objective = ArdmObjective(network, ArdmOptions())
    for seed in range(3):
        objective(TOKENS[:LENGTH], Streams.derive(seed, range(LENGTH)), range(LENGTH), LENGTH)
        assert (seen[-1] != 5).sum(dim=1).tolist() == list(range(LENGTH))
    assert not torch.equal(seen[0] == 5, seen[1] == 5)


def test_it_learns_the_loss_by_known_tokens() -> None:
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


def test_the_learned_losses_are_saved_and_used(tmp_path: Path) -> None:
    """After one token of a cycle the others cost nothing, so two steps are exact."""
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


def test_an_invalid_decay_is_refused() -> None:
    with pytest.raises(ValueError, match=r"decay must lie in \[0, 1\), got 1.0"):
        ArdmOptions(decay=1.0)


class Knowing(Double):
    """An exact denoiser with given losses by known tokens."""

    def __init__(self, truth: oracle.Oracle, losses: list[float]) -> None:
        self.truth, self.codebook = truth, truth.codebook
        self.loss_by_known = torch.tensor(losses)

    def __call__(self, z: Tensor | Endpoints, /, *, at: Tensor | None = None) -> Tensor:
        return self.truth(z, at=at)


def cost(losses: Tensor, counts: list[int], known: int = 0) -> float:
    total = 0.0
    for count in counts:
        total += count * float(losses[known])
        known += count
    return total


def cheapest(losses: Tensor, steps: int, known: int) -> float:
    """The least cost of all partitions of the masked tokens into `steps` parts."""
    length = len(losses)
    cuts = combinations(range(known + 1, length), steps - 1)
    ways = [[known, *inner, length] for inner in cuts]
    return min(cost(losses, [b - a for a, b in pairwise(way)], known) for way in ways)


class TestBudget:
    @pytest.mark.parametrize("seed", range(6))
    def test_no_other_partition_is_cheaper(self, seed: int) -> None:
        """By enumeration, also for losses that are not monotone."""
        losses = torch.rand(8, generator=stream(seed), dtype=torch.float64)
        losses = losses.sort(descending=True).values if seed % 2 else losses
        for steps in range(1, 9):
            known = range(9 - steps)
            for start, counts in zip(known, budget(losses, steps, known), strict=True):
                assert len(counts) == steps and min(counts) >= 1
                assert start + sum(counts) == 8
                found, least = cost(losses, counts, start), cheapest(losses, steps, start)
                assert found == pytest.approx(least, rel=1e-9)

    def test_there_are_no_more_steps_than_tokens(self) -> None:
        losses = torch.arange(5.0).flip(0)
        assert budget(losses, 1_000_000) == [[1] * 5]
        assert budget(losses, 9, [3, 5]) == [[1, 1], []]

    def test_a_linear_profile_has_equal_steps(self) -> None:
        assert budget(profile(object(), 12), 4) == [[3, 3, 3, 3]]
        assert budget(profile(object(), 12), 3, [0, 6]) == [[4, 4, 4], [2, 2, 2]]

    def test_a_flat_profile_has_equal_steps(self) -> None:
        flat = Knowing(oracle.two_bit(), [0.7] * 12)
        assert budget(profile(flat, 12), 4) == [[3, 3, 3, 3]]

    def test_steps_are_short_where_the_loss_falls(self) -> None:
        early = torch.tensor([8.0, 4.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0])
        assert budget(early, 4) == [[1, 1, 1, 5]]

    def test_a_profile_is_interpolated_to_the_length(self) -> None:
        network = Knowing(oracle.two_bit(), [3.0, 2.0, 1.0])
        assert isinstance(network, Profiled)
        assert profile(network, 3).tolist() == pytest.approx([3, 2, 1], rel=1e-5)
        wrapped = padded(network, 2)
        assert profile(wrapped, 3).tolist() == profile(network, 3).tolist(), (
            "wrappers do not matter"
        )
        assert profile(network, 5).tolist() == pytest.approx([3, 2.5, 2, 1.5, 1], rel=1e-5)


def parallel_law(truth: oracle.Enumerated, counts: list[int]) -> oracle.Enumerated:
    """The law of a parallel sampler: tokens of a step are independent; average over all orders."""
    rows, length = truth.sequences, truth.length
    p = torch.zeros(len(rows), dtype=torch.float64)
    orders = list(permutations(range(length)))
    for order in orders:
        log_p, known = torch.zeros(len(rows), dtype=torch.float64), 0
        for count in counts:
            shown = rows.clone()
            shown[:, list(order[known:])] = MASK
            own = truth(Endpoints(shown)).log_softmax(-1).gather(-1, rows.unsqueeze(-1))
            log_p += own.squeeze(-1)[:, list(order[known : known + count])].sum(dim=1)
            known += count
        p += log_p.exp() / len(orders)
    assert float(p.sum()) == pytest.approx(1, abs=1e-9)
    return oracle.Enumerated(rows, p.log(), truth.codebook)


class TestDistribution:
    chain = oracle.markov(3, 4, sharpness=0.8)
    truth = chain.enumerated()

    def drawn(self, name: str, denoiser: Denoiser) -> Tensor:
        return last(sampler(name), denoiser, State.blank(DRAWS, 4), generator=stream(1)).tokens

    def test_one_token_per_step_draws_from_the_truth(self) -> None:
        assert p_value(self.truth, self.drawn("ardm@4", self.chain)) > 1e-4

    def test_a_wrong_network_is_noticed(self) -> None:
        other = oracle.markov(3, 4, seed=1, sharpness=0.8)
        assert p_value(self.truth, self.drawn("ardm@4", other)) < 1e-9

    @pytest.mark.parametrize(
        ("losses", "counts"), [([4.0, 3.0, 2.0, 1.0], [2, 2]), ([9.0, 1.0, 0.9, 0.8], [1, 3])]
    )
    def test_fewer_steps_draw_from_their_own_law(
        self, losses: list[float], counts: list[int]
    ) -> None:
        """The test distinguishes it from the truth and from the law of other partitions."""
        network = Knowing(self.chain, losses)
        assert budget(profile(network, 4), 2) == [counts]
        tokens = self.drawn("ardm@2", network)
        assert p_value(parallel_law(self.truth, counts), tokens) > 1e-4
        assert p_value(self.truth, tokens) < 1e-9
        assert p_value(parallel_law(self.truth, [3, 1]), tokens) < 1e-3

    def test_two_planned_steps_are_exact_on_a_cycle(self) -> None:
        """All rotations of a cycle: after one token the others cost nothing; equal steps fail."""
        cycle = oracle.cyclic(7)
        for network, right in ((Knowing(cycle, [1.9] + [0.0] * 6), True), (cycle, False)):
            end = last(sampler("ardm@2"), network, State.blank(500, 7), generator=stream(3))
            assert bool(cycle.log_prob(end.tokens).isfinite().all()) is right
            assert end.nfe.tolist() == [2] * 500


def test_a_prompt_is_planned_from_its_known_tokens() -> None:
    """Each sequence has its own plan, with one call for each of its steps."""
    start = torch.full((3, 6), MASK)
    start[0, :4], start[1] = torch.tensor([0, 1, 2, 0]), torch.tensor([0, 1, 2, 0, 1, 2])
    state = State.start(start)
    chain = oracle.markov(3, 6)
    states = list(sampler("ardm@3").steps(chain, state, generator=stream(0)))
    revealed = [reached.masked.sum(dim=1).tolist() for reached in states]
    assert revealed == [[1, 0, 4], [0, 0, 2], [0, 0, 0]]
    assert states[-1].nfe.tolist() == [2, 0, 3]
    assert torch.equal(states[-1].tokens[state.fixed], start[state.fixed])


def test_the_order_is_uniform() -> None:
    """Every pair of positions is equally often revealed first."""
    state = State.blank(6000, 4)
    plan = Parallel(2).plan(oracle.markov(3, 4), state, stream(5))
    first = (plan == 0).long() @ (2 ** torch.arange(4))
    counts = first.bincount(minlength=16)
    pairs = counts[[3, 5, 6, 9, 10, 12]]
    assert int(pairs.sum()) == 6000
    assert ((pairs - 1000).abs() < 5 * (6000 / 6 * 5 / 6) ** 0.5).all()
