"""Dropout by item: a mask is a function of seed, layer and place, and looks like coin tosses."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from dsl.models.config import ModelConfig
from dsl.models.dropout import ItemDropout, seed_dropout
from dsl.models.dsl import DSLModel

L, H = 64, 32
P = 0.3
CONSECUTIVE = list(range(300))
SPREAD = [(i * 0x5851F42D4C957F2D + 0x14057B7EF767814F) % 2**63 for i in range(300)]
SEEDS = {"consecutive": CONSECUTIVE, "spread": SPREAD}


def dropped(x: Tensor, seeds: list[int], *, layer: int = 0, p: float = P) -> Tensor:
    module = ItemDropout(p).train()
    module.layer, module.seeds = layer, torch.tensor(seeds)
    return module(x)


def masks(seeds: list[int], *, layer: int = 0, p: float = P) -> Tensor:
    """Which places are kept, a row for each seed."""
    return (dropped(torch.ones(len(seeds), L, H), seeds, layer=layer, p=p) != 0).flatten(1)


def correlation(one: Tensor, other: Tensor) -> float:
    """Return the correlation of two masks in standard errors of independent ones."""
    centred = (one.double() - (1 - P)) * (other.double() - (1 - P))
    return float(centred.mean()) / (P * (1 - P)) * math.sqrt(centred.numel())


class TestItems:
    """The mask of an item is its own."""

    x = torch.randn(5, L, H, generator=torch.Generator().manual_seed(0))
    seeds = (11, 12, 2**62 + 5, 0, 2**63 - 1)

    @pytest.mark.parametrize("rows", [[2], [4, 2, 0], [0, 1, 2, 3], [2, 2]])
    def test_it_does_not_depend_on_the_batch_or_the_place_in_it(self, rows: list[int]) -> None:
        whole = dropped(self.x, list(self.seeds))
        part = dropped(self.x[rows], [self.seeds[i] for i in rows])
        assert torch.equal(part, whole[rows])

    def test_it_is_the_same_again_whatever_torch_has_drawn(self) -> None:
        first = dropped(self.x, list(self.seeds))
        torch.rand(7)
        assert torch.equal(first, dropped(self.x, list(self.seeds)))

    def test_it_does_not_depend_on_the_values(self) -> None:
        kept = dropped(self.x, list(self.seeds)) != 0
        assert torch.equal(kept.flatten(1), masks(list(self.seeds)))

    def test_what_is_kept_is_scaled_up(self) -> None:
        found = dropped(self.x, list(self.seeds))
        kept = found != 0
        torch.testing.assert_close(found[kept], self.x[kept] / (1 - P))


@pytest.mark.parametrize("kind", SEEDS)
class TestCoins:
    """Masks of many items cannot be told from independent coins of probability p."""

    @pytest.mark.parametrize("p", [0.05, 0.1, 0.3, 0.5, 0.9])
    def test_a_share_of_one_minus_p_is_kept(self, kind: str, p: float) -> None:
        kept = masks(SEEDS[kind], p=p).double()
        error = math.sqrt(p * (1 - p))
        assert abs(float(kept.mean()) - (1 - p)) < 4 * error / math.sqrt(kept.numel())
        # of each item, too: 300 of them stay below 5, and spread as they should
        shares = (kept.mean(dim=1) - (1 - p)) / (error / math.sqrt(kept.shape[1]))
        assert float(shares.abs().max()) < 5
        assert abs(float(shares.var()) - 1) < 5 * math.sqrt(2 / len(shares))

    def test_the_expectation_is_preserved(self, kind: str) -> None:
        found = dropped(torch.ones(300, L, H), SEEDS[kind]).double()
        error = math.sqrt(P / (1 - P))
        assert abs(float(found.mean()) - 1) < 4 * error / math.sqrt(found.numel())
        # at every place: 2,048 means over 300 items stay below 5 errors
        places = (found.mean(dim=0) - 1) / (error / math.sqrt(300))
        assert float(places.abs().max()) < 5

    @pytest.mark.parametrize("lag", [1, 2, 3, 4, 8, H, 2 * H])
    def test_neighbouring_places_are_independent(self, kind: str, lag: int) -> None:
        kept = masks(SEEDS[kind])
        assert abs(correlation(kept[:, :-lag], kept[:, lag:])) < 4.5

    @pytest.mark.parametrize("lag", [1, 2, 3, 4, 7, 64])
    def test_seeds_are_independent(self, kind: str, lag: int) -> None:
        kept = masks(SEEDS[kind])
        assert abs(correlation(kept[:-lag], kept[lag:])) < 4.5

    @pytest.mark.parametrize("shift", [1, 2, 3, H])
    def test_no_seed_has_the_mask_of_another_with_places_exchanged(
        self, kind: str, shift: int
    ) -> None:
        kept = masks(SEEDS[kind])
        exchanged = kept[:, torch.arange(L * H) ^ shift]
        for lag in (1, 2, 3):
            assert abs(correlation(kept[:-lag], exchanged[lag:])) < 4.5

    @pytest.mark.parametrize("layer", [1, 2, 3, 11])
    def test_layers_are_independent(self, kind: str, layer: int) -> None:
        assert abs(correlation(masks(SEEDS[kind]), masks(SEEDS[kind], layer=layer))) < 4.5


def test_high_and_low_bits_of_a_seed_both_count() -> None:
    base = 2**61 + 2**40 + 12345
    for bit in (0, 1, 15, 30, 31, 32, 45, 62):
        one, other = masks([base]), masks([base ^ 2**bit])
        assert abs(correlation(one, other)) < 5, bit


def test_without_seeds_it_is_torchs_dropout() -> None:
    module, x = ItemDropout(P).train(), torch.randn(3, L, H)
    torch.manual_seed(4)
    ours = module(x)
    torch.manual_seed(4)
    assert torch.equal(ours, nn.functional.dropout(x, P))


@pytest.mark.parametrize("p, training", [(0.0, True), (P, False)])
def test_nothing_is_dropped_at_zero_or_outside_of_training(p: float, training: bool) -> None:
    module, x = ItemDropout(p).train(training), torch.randn(2, L, H)
    module.seeds = torch.tensor([1, 2])
    assert torch.equal(module(x), x)


@pytest.mark.parametrize("backbone", ["dit", "encoder"])
def test_every_place_of_a_network_where_something_is_dropped_has_its_own_mask(
    backbone: str,
) -> None:
    """Attention and feed-forward of every block: two masks a block, no two alike."""
    config = ModelConfig(
        7, codebook_dim=6, hidden_dim=16, cond_dim=4, n_blocks=3, n_heads=2, backbone=backbone,
        dropout=P,
    )  # fmt: skip
    model = DSLModel(config).train()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    seen: list[Tensor] = []
    for layer in model.modules():
        if isinstance(layer, ItemDropout):
            layer.register_forward_hook(lambda _m, _x, out: seen.append(out != 0))
    seed_dropout(model, torch.tensor([5, 6]))
    model(torch.randn(2, 4, 6))
    assert len(seen) == 2 * 3
    rows = {tuple(kept.flatten().tolist()) for kept in seen}
    assert len(rows) == len(seen)


def test_seeds_are_given_and_taken_away() -> None:
    model = nn.Sequential(ItemDropout(P), nn.Sequential(ItemDropout(P)))
    seed_dropout(model, torch.tensor([1]))
    layers = [inner for inner in model.modules() if isinstance(inner, ItemDropout)]
    assert [layer.layer for layer in layers] == [0, 1]
    assert all(layer.seeds is not None for layer in layers)
    seed_dropout(model, None)
    assert all(layer.seeds is None for layer in layers)
