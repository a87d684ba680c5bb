"""The parallel sampler of ARDM: its plan against brute force, its draws against their own law."""

from __future__ import annotations

from itertools import combinations, pairwise, permutations

import pytest
import torch
from torch import Tensor

from dsl.apps.zoo.ardm import Parallel, Profiled, budget, profile
from dsl.conditioning.padding import padded
from dsl.core import oracle
from dsl.core.denoiser import Denoiser, Endpoints
from dsl.core.streams import stream
from dsl.core.types import MASK
from dsl.samplers.base import last
from dsl.samplers.registry import sampler
from dsl.samplers.state import State
from tests.apps.zoo.test_timed import DRAWS, p_value
from tests.doubles import Double


class Knowing(Double):
    """An exact denoiser that also knows what a token costs it."""

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
    """The least cost of all ways to cut the masked tokens into so many steps."""
    length = len(losses)
    cuts = combinations(range(known + 1, length), steps - 1)
    ways = [[known, *inner, length] for inner in cuts]
    return min(cost(losses, [b - a for a, b in pairwise(way)], known) for way in ways)


class TestBudget:
    @pytest.mark.parametrize("seed", range(6))
    def test_no_other_way_to_cut_is_cheaper(self, seed: int) -> None:
        """Enumerated; the losses need not even fall."""
        losses = torch.rand(8, generator=stream(seed), dtype=torch.float64)
        losses = losses.sort(descending=True).values if seed % 2 else losses
        for steps in range(1, 9):
            known = range(9 - steps)
            for start, counts in zip(known, budget(losses, steps, known), strict=True):
                assert len(counts) == steps and min(counts) >= 1
                assert start + sum(counts) == 8
                found, least = cost(losses, counts, start), cheapest(losses, steps, start)
                assert found == pytest.approx(least, rel=1e-9)

    def test_more_steps_than_tokens_are_not_made(self) -> None:
        losses = torch.arange(5.0).flip(0)
        assert budget(losses, 1_000_000) == [[1] * 5]
        assert budget(losses, 9, [3, 5]) == [[1, 1], []]

    def test_an_even_fall_is_cut_into_equal_steps(self) -> None:
        assert budget(profile(object(), 12), 4) == [[3, 3, 3, 3]]
        assert budget(profile(object(), 12), 3, [0, 6]) == [[4, 4, 4], [2, 2, 2]]

    def test_so_is_no_fall_at_all(self) -> None:
        flat = Knowing(oracle.two_bit(), [0.7] * 12)
        assert budget(profile(flat, 12), 4) == [[3, 3, 3, 3]]

    def test_steps_are_spent_where_the_loss_falls(self) -> None:
        early = torch.tensor([8.0, 4.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0])
        assert budget(early, 4) == [[1, 1, 1, 5]]

    def test_a_profile_is_stretched_to_the_length(self) -> None:
        network = Knowing(oracle.two_bit(), [3.0, 2.0, 1.0])
        assert isinstance(network, Profiled)
        assert profile(network, 3).tolist() == pytest.approx([3, 2, 1], rel=1e-5)
        wrapped = padded(network, 2)
        assert profile(wrapped, 3).tolist() == profile(network, 3).tolist(), "whatever is around it"
        assert profile(network, 5).tolist() == pytest.approx([3, 2.5, 2, 1.5, 1], rel=1e-5)


def parallel_law(truth: oracle.Enumerated, counts: list[int]) -> oracle.Enumerated:
    """Sum over all orders: in a step every token has its own conditional, given what was known."""
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

    def test_one_token_a_step_draws_from_the_truth(self) -> None:
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
        """Which is not the truth, nor that of other cuts: the test can tell them apart."""
        network = Knowing(self.chain, losses)
        assert budget(profile(network, 4), 2) == [counts]
        tokens = self.drawn("ardm@2", network)
        assert p_value(parallel_law(self.truth, counts), tokens) > 1e-4
        assert p_value(self.truth, tokens) < 1e-9
        assert p_value(parallel_law(self.truth, [3, 1]), tokens) < 1e-3

    def test_who_knows_its_losses_is_exact_in_two_steps_where_one_token_tells_all(self) -> None:
        """All rotations of a cycle: after one token the others cost nothing; equal steps fail."""
        cycle = oracle.cyclic(7)
        for network, right in ((Knowing(cycle, [1.9] + [0.0] * 6), True), (cycle, False)):
            end = last(sampler("ardm@2"), network, State.blank(500, 7), generator=stream(3))
            assert bool(cycle.log_prob(end.tokens).isfinite().all()) is right
            assert end.nfe.tolist() == [2] * 500


def test_a_prompt_is_planned_from_where_it_stands() -> None:
    """Each sequence has steps of its own, and needs no more calls than they are."""
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
    """Every pair of positions is as often revealed first as any other."""
    state = State.blank(6000, 4)
    plan = Parallel(2).plan(oracle.markov(3, 4), state, stream(5))
    first = (plan == 0).long() @ (2 ** torch.arange(4))
    counts = first.bincount(minlength=16)
    pairs = counts[[3, 5, 6, 9, 10, 12]]
    assert int(pairs.sum()) == 6000
    assert ((pairs - 1000).abs() < 5 * (6000 / 6 * 5 / 6) ** 0.5).all()
