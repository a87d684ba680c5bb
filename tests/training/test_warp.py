"""The learned law of SNRs: it follows the fall of the loss, and its weights undo it."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.optimize import isotonic_regression
from torch import Tensor

from dsl.core.snr import LogNormal, Mixed
from dsl.core.streams import Streams, stream
from dsl.families.mixed_snr import MixedSNRObjective, MixedSNROptions
from dsl.families.warp import Warp, WarpOptions, falling
from tests.training.conftest import small

GRID = ((torch.arange(120_000).double() + 0.5) / 120_000).unsqueeze(0)
EVERYWHERE = torch.ones(1, 120_000, dtype=torch.bool)


def taught(losses: Tensor, **options: float) -> Warp:
    """A warp that has seen these losses on the whole of the given law."""
    warp = Warp(WarpOptions(bins=8, **options))  # type: ignore[arg-type]
    warp.learn(warp.tally(GRID, losses, EVERYWHERE))
    return warp


def steep(q: Tensor) -> Tensor:
    """A loss that falls around q = ½."""
    return 3 * torch.sigmoid(30 * (0.5 - q))


class TestWarp:
    def test_it_begins_as_the_given_law(self) -> None:
        q, weight = Warp(WarpOptions())(GRID)
        torch.testing.assert_close(q, GRID)
        torch.testing.assert_close(weight, torch.ones_like(GRID))

    def test_a_loss_that_falls_evenly_or_not_at_all_changes_little(self) -> None:
        """With half a bin cut off at both ends: 7 of 8 half-drops, the outer two a half each."""
        even = taught(1 - GRID, floor=0.5).mass
        inner = 0.5 / 8 + 0.5 / 7
        torch.testing.assert_close(even[1:-1], torch.full((6,), inner).double(), rtol=1e-6, atol=0)
        for flat in (torch.ones_like(GRID), GRID):  # a loss that rises is a flat one with noise
            torch.testing.assert_close(taught(flat).mass, torch.full((8,), 1 / 8).double())

    def test_mass_goes_where_the_loss_falls(self) -> None:
        mass = taught(steep(GRID), floor=0.2).mass
        assert float(mass.sum()) == pytest.approx(1.0)
        assert float(mass[3:5].sum()) > 0.65
        assert (mass >= 0.2 / 8 - 1e-12).all()
        torch.testing.assert_close(mass, mass.flip(0), rtol=1e-4, atol=1e-6)

    def test_the_learned_distribution_function_is_inverted(self) -> None:
        """F is piecewise linear over the bins: F(q(u)) = u."""
        warp = taught(steep(GRID))
        q, _ = warp(GRID)
        knots = torch.cat([torch.zeros(1).double(), warp.mass.cumsum(0)])
        at = (q * 8).long().clamp(max=7)
        torch.testing.assert_close(knots[at] + (q * 8 - at) * warp.mass[at], GRID)
        assert (q[0, 1:] >= q[0, :-1]).all()

    def test_as_a_function_of_it_the_loss_falls_evenly(self) -> None:
        """CDCD's aim: between the knots of F, averages over bins fall by what they take up."""
        warp = taught(steep(GRID), floor=1e-9)
        mean = warp.losses / warp.counts
        ends = torch.cat([mean[:1], (mean[1:] + mean[:-1]) / 2, mean[-1:]])
        falls = (ends[:-1] - ends[1:]) / (mean[0] - mean[-1])
        torch.testing.assert_close(falls, warp.mass, rtol=0, atol=1e-8)

    @pytest.mark.parametrize("power", [0, 1, 3])
    def test_weights_give_the_mean_of_the_given_law(self, power: int) -> None:
        """∫ w(u) q(u)^p du = 1/(p + 1), which without weights only p = 0 obeys."""
        q, weight = taught(3 * (1 - GRID) ** 4)(GRID)
        assert float((weight * q**power).mean()) == pytest.approx(1 / (power + 1), rel=1e-3)
        plain, ones = taught(3 * (1 - GRID) ** 4, weighted=False)(GRID)
        assert (ones == 1).all() and torch.equal(plain, q)
        if power:
            assert float((plain**power).mean()) < 0.8 / (power + 1)

    def test_what_pieces_tally_adds_up(self) -> None:
        warp, losses = Warp(WarpOptions(bins=8)), steep(GRID)
        where = GRID > 0.3
        whole = warp.tally(GRID, losses, where)
        parts = [
            warp.tally(GRID[:, s], losses[:, s], where[:, s])
            for s in (slice(0, 50_000), slice(50_000, None))
        ]
        torch.testing.assert_close(whole, parts[0] + parts[1])
        assert int(whole[8:].sum()) == int(where.sum()) and float(whole[8:10].sum()) == 0

    def test_the_past_is_forgotten_by_the_decay(self) -> None:
        warp = Warp(WarpOptions(bins=2, decay=0.5))
        for loss in (4.0, 1.0):
            warp.learn(torch.tensor([loss, 0.0, 1.0, 1.0]).double())
        assert warp.losses.tolist() == [3.0, 0.0] and warp.counts.tolist() == [1.5, 1.5]

    @pytest.mark.parametrize("seed", range(5))
    def test_falling_is_isotonic_regression(self, seed: int) -> None:
        values = torch.randn(40, generator=stream(seed)).double()
        weights = torch.rand(40, generator=stream(seed, 1)).double() + 0.1
        wanted = isotonic_regression(values.numpy(), weights=weights.numpy(), increasing=False).x
        torch.testing.assert_close(falling(values, weights), torch.from_numpy(wanted.copy()))

    @pytest.mark.parametrize("change", [{"bins": 1}, {"decay": 1.0}, {"floor": 0.0}])
    def test_impossible_settings_are_refused(self, change: dict[str, float]) -> None:
        with pytest.raises(ValueError, match="a warp needs bins in 2"):
            WarpOptions(**change)  # type: ignore[arg-type]


def means(warp: WarpOptions | None, steps: int) -> Tensor:
    """Losses of batches of 64 sequences, each at one SNR, from which the warp has moved half."""
    law = Mixed(LogNormal(1.0, 1.5, shared=True), weight=0.8)
    torch.manual_seed(0)
    objective = MixedSNRObjective(small(), MixedSNROptions(law, warp=warp))
    if objective.warp is not None:
        objective.learn(torch.tensor([9.0, 1.0, 0.5, 0.2, 1.0, 1.0, 1.0, 1.0]).double())
    tokens = torch.randint(7, (64, 3), generator=stream(0))
    seed = 1 if warp is None else 2
    with torch.no_grad():
        noise = (Streams.derive(seed, range(64 * i, 64 * (i + 1))) for i in range(steps))
        found = [float(objective(tokens, own, range(64), 64).mean) for own in noise]
    return torch.tensor(found).double()


def test_the_objective_is_the_same_in_expectation_only_with_weights() -> None:
    """60 batches each way, 4 standard errors; exact because all tokens of a text share an SNR."""
    plain = means(None, 60)
    for weighted in (True, False):
        ours = means(WarpOptions(weighted, bins=4, floor=0.3), 60)
        error = math.sqrt(float(ours.var() + plain.var()) / 60)
        assert (abs(float(ours.mean() - plain.mean())) < 4 * error) == weighted


def test_the_objective_tallies_its_continuous_positions() -> None:
    options = MixedSNROptions(Mixed(weight=0.5), draws="stratified", warp=WarpOptions(bins=4))
    objective = MixedSNRObjective(small(), options)
    tokens = torch.randint(7, (6, 5), generator=stream(0))
    noise = Streams(tuple(stream(1, place) for place in range(6)), shared=stream(1))
    loss = objective(tokens, noise, range(6), 6)
    assert loss.learned is not None
    sums, counts = loss.learned.chunk(2)
    value, count = loss.parts["continuous"]
    assert int(counts.sum()) == int(count) == 15
    assert float(sums.sum()) == pytest.approx(float(value), rel=1e-5)
    before = objective.own()
    assert set(before) == {"warp.losses", "warp.counts", "warp.mass"}
    objective.learn(loss.learned)
    torch.testing.assert_close(objective.own()["warp.losses"], sums)
