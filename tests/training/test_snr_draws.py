"""SNRs drawn together: each has its own law to the letter, and together they fill it evenly."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from dsl.core.snr import LogNormal, Mixed, Roar
from dsl.core.streams import Streams, stream
from dsl.families.mixed_snr import Drawn, MixedSNRObjective, MixedSNROptions, Spread, draw, spread
from tests.conftest import assert_near
from tests.training.conftest import small

CPU = torch.device("cpu")
TOGETHER: tuple[Spread, ...] = ("stratified", "antithetic")
BATCH, LENGTH, STEPS = 4, 3, 400
FAR = 2.3
"""√n times Kolmogorov's distance is above this with probability 2 exp(-2 FAR²) = 5e-5."""


def streams(step: int, places: range) -> Streams:
    own = tuple(stream(5, step, place) for place in places)
    return Streams(own, shared=stream(5, step))


def drawn(law: Mixed, how: Spread, step: int, places: range, batch: int, length: int) -> Drawn:
    shape = (len(places), length)
    return draw(law, how, shape, streams(step, places), places, batch, device=CPU)


def distance(sample: Tensor, law: Callable[[Tensor], Tensor]) -> float:
    """√n times the largest gap between the law and what was drawn."""
    ordered = sample.double().sort().values
    n = len(ordered)
    share = law(ordered)
    above = torch.arange(1, n + 1) / n - share
    below = share - torch.arange(n) / n
    return float(torch.cat([above, below]).max()) * math.sqrt(n)


def mixture(law: Mixed) -> Callable[[Tensor], Tensor]:
    """The distribution function of one position's SNR, written down by hand."""
    ends, inner = law.endpoint, law.continuous
    revealed = (LENGTH - 1) / (2 * LENGTH)

    def share(snr: Tensor) -> Tensor:
        low = (snr / ends.snr_min).clamp(0, 1)
        high = ((snr / ends.snr_max - ends.c) / (1 - ends.c)).clamp(0, 1)
        middle = torch.special.ndtr((snr.log() - inner.mu) / inner.sigma)
        return law.weight * middle + (1 - law.weight) * ((1 - revealed) * low + revealed * high)

    return share


class TestSpread:
    @pytest.mark.parametrize("how", ["independent", *TOGETHER])
    def test_every_number_is_uniform(self, how: Spread) -> None:
        """5 places, 2000 draws each; one place being fixed to one stratum would be seen."""
        found = torch.stack([spread(5, how, stream(step)) for step in range(2000)])
        for place in found.T:
            assert distance(place, lambda u: u) < FAR

    @pytest.mark.parametrize("n", [1, 2, 7, 64])
    def test_each_stratum_has_one(self, n: int) -> None:
        for step in range(20):
            found = spread(n, "stratified", stream(step))
            assert sorted((found * n).long().tolist()) == list(range(n))

    @pytest.mark.parametrize("n", [2, 7, 64])
    def test_antithetic_numbers_come_in_pairs(self, n: int) -> None:
        """Sorted, the first and the last add to 1; of an odd number one is alone."""
        for step in range(20):
            found = spread(n, "antithetic", stream(step)).tolist()
            alone = [u for u in found if min(abs(u + v - 1) for v in found) > 1e-12]
            assert len(alone) in ((0,) if n % 2 == 0 else (0, 1))
            assert len(set(found)) == n


class TestDraw:
    @pytest.mark.parametrize(
        "how, per, shared",
        [
            ("stratified", "sequence", False),
            ("antithetic", "sequence", True),
            ("antithetic", "token", False),
            ("stratified", "token", True),
        ],
    )
    def test_every_position_has_the_law_of_the_mixture(
        self, how: Spread, per: str, shared: bool
    ) -> None:
        law = Mixed(LogNormal(1.0, 0.7, shared), Roar(50.0, 2.0, 0.6), 0.6, per)
        steps = [drawn(law, how, step, range(BATCH), BATCH, LENGTH).snr for step in range(STEPS)]
        for place in torch.stack(steps).flatten(1).T:
            assert distance(place, mixture(law)) < FAR

    def test_branches_have_their_share_in_every_batch(self) -> None:
        """Of 20 sequences two are ROAR's at λ = 0.9: not on average, always."""
        for step in range(10):
            found = drawn(Mixed(), "stratified", step, range(20), 20, LENGTH)
            assert found.continuous.all(dim=1).sum() == 18
            assert (~found.continuous).all(dim=1).sum() == 2

    def test_every_number_of_tokens_is_revealed_once(self) -> None:
        law = Mixed(endpoint=Roar.atomic(), weight=0.0)
        for step in range(10):
            found = drawn(law, "stratified", step, range(6), 6, 6)
            assert sorted((found.snr == 100).sum(dim=1).tolist()) == list(range(6))

    def test_each_stratum_of_the_law_has_one_token_of_the_sequence(self) -> None:
        law = Mixed(LogNormal(1.0, 0.7), weight=1.0)
        found = drawn(law, "stratified", 0, range(5), 5, 40)
        share = torch.special.ndtr((found.snr.double().log() - 1.0) / 0.7)
        for row in share:
            assert sorted((row * 40).long().tolist()) == list(range(40))

    def test_a_shared_snr_is_spread_over_the_batch(self) -> None:
        law = Mixed(LogNormal(1.0, 0.7, shared=True), weight=1.0)
        found = drawn(law, "stratified", 0, range(16), 16, 3).snr
        assert (found == found[:, :1]).all()
        share = torch.special.ndtr((found[:, 0].double().log() - 1.0) / 0.7)
        assert sorted((share * 16).long().tolist()) == list(range(16))

    @pytest.mark.parametrize("how", ["independent", *TOGETHER])
    @pytest.mark.parametrize("per", ["sequence", "token"])
    def test_a_batch_is_the_same_however_it_is_cut(self, how: Spread, per: str) -> None:
        law = Mixed(weight=0.5, per=per)  # type: ignore[arg-type]
        whole = drawn(law, how, 3, range(8), 8, 5).snr
        pieces = [range(3), range(3, 4), range(4, 8)]
        assert torch.equal(
            whole, torch.cat([drawn(law, how, 3, piece, 8, 5).snr for piece in pieces])
        )

    @pytest.mark.parametrize("how, most", [("stratified", 0.05), ("antithetic", 0.5)])
    def test_means_vary_less_than_those_of_independent_draws(
        self, how: Spread, most: float
    ) -> None:
        """The mean of ln γ over 32 tokens, 200 sequences; independent: σ²/32."""
        law = Mixed(LogNormal(0.0, 1.0), weight=1.0)
        means = drawn(law, how, 0, range(200), 200, 32).snr.log().mean(dim=1)
        assert float(means.var()) < most / 32

    def test_streams_that_share_nothing_are_refused(self) -> None:
        with pytest.raises(ValueError, match="stratified SNRs need streams that share"):
            draw(Mixed(), "stratified", (2, 3), Streams.derive(0, range(2)), range(2), 2,
                 device=CPU)  # fmt: skip


@pytest.mark.parametrize("how", TOGETHER)
def test_the_objective_uses_them(how: Spread) -> None:
    """An item's loss is that at the SNRs of `draw`: masked-only counts those below 1."""
    law = Mixed(endpoint=Roar.atomic(), weight=0.0)
    objective = MixedSNRObjective(small(), MixedSNROptions(law, masked_only=True, draws=how))
    tokens = torch.randint(7, (6, 5), generator=stream(0))
    loss = objective(tokens, streams(2, range(6)), range(6), 6)
    snr = drawn(law, how, 2, range(6), 6, 5).snr
    assert int(loss.count) == int((snr == 0).sum())
    halves = [
        objective(tokens[p.start : p.stop], streams(2, p), p, 6) for p in (range(3), range(3, 6))
    ]
    assert_near(loss.sum, halves[0].sum + halves[1].sum)
