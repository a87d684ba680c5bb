"""A batch is one thing: how it is cut into micro-batches changes a run by rounding alone."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
import torch
from torch import nn

from dsl.families.registry import FAMILIES
from dsl.models.dropout import ItemDropout, seed_dropout
from tests.training.conftest import close, settings, train, weights

SHORT = (
    "trainer.steps=4", "trainer.batch=8", "trainer.log_every=1", "trainer.validate_every=4",
    "trainer.save_every=4", "optimizer.eps=1e-4", "optimizer.warmup=0",
)  # fmt: skip
MASKED = "objective={masked_only: true}"
CASES = {
    "masked only": (MASKED,),
    "penalised": ("objective={masked_only: true, codebook_penalty: 0.5}",),
    "all masked in turn": (MASKED, "trainer.batch=3"),
    "spread and learned SNRs": (
        "objective={draws: stratified, warp: {bins: 4, decay: 0.5}, snr: {weight: 0.7}}",
        "model.dropout=0.3",
    ),
    "pairs of SNRs": ("objective={draws: antithetic, snr: {per: token, weight: 0.5}}",),
    "muon": (MASKED, "model.dropout=0.3", "optimizer.kind=muon"),
    **{f"dropout, {name}": (f"objective={name}", "model.dropout=0.3") for name in FAMILIES},
}
QUICK = ("spread and learned SNRs", "muon")


@pytest.mark.parametrize(
    "case",
    [case if case in QUICK else pytest.param(case, marks=pytest.mark.slow) for case in CASES],
)
def test_micro_batches_are_the_whole_batch(case: str, tmp_path: Path, cache: Path) -> None:
    """Micro-batches of 1 count other numbers of positions each, and of 5 do not fit evenly."""
    short = settings(*SHORT, *CASES[case])
    assert train(tmp_path / "whole", cache, *short) == 0
    for size in (1, 5):
        out = tmp_path / f"{size}"
        assert train(out, cache, *short, *settings(f"trainer.micro_batch={size}")) == 0
        close(out, tmp_path / "whole")


def test_dropout_changes_what_is_learned(tmp_path: Path, cache: Path) -> None:
    """Otherwise the laws above would say nothing about it."""
    for rate in ("0.0", "0.3"):
        assert train(tmp_path / rate, cache, *settings(*SHORT, f"model.dropout={rate}")) == 0
    ours, theirs = (weights(tmp_path / rate) for rate in ("0.0", "0.3"))
    assert max(float((ours[name] - theirs[name]).abs().max()) for name in ours) > 1e-4


class TestItemDropout:
    """Elements are dropped by a hash of the item's seed, the layer and the place."""

    seeds = torch.tensor([7, 2**40 + 3, 2**62 + 11, 5])
    x = torch.ones(4, 50, 64)

    def made(self, p: float = 0.3) -> nn.Sequential:
        layers = nn.Sequential(ItemDropout(p), ItemDropout(p))
        seed_dropout(layers, self.seeds)
        return layers

    def test_the_mean_stays_and_the_share_is_right(self) -> None:
        for p in (0.1, 0.3, 0.8):
            kept = self.made(p)[0](self.x)
            share = (kept != 0).double().mean(dim=(1, 2))
            assert (share - (1 - p)).abs().max() < 5 * (p * (1 - p) / 3200) ** 0.5
            torch.testing.assert_close(
                kept[kept != 0], torch.full_like(kept[kept != 0], 1 / (1 - p))
            )

    def test_an_item_has_its_own_whatever_batch_it_sits_in(self) -> None:
        whole = self.made()[0](self.x)
        for i in range(4):
            alone = ItemDropout(0.3)
            seed_dropout(alone, self.seeds[i : i + 1])
            assert torch.equal(alone(self.x[i : i + 1]), whole[i : i + 1])

    def test_items_layers_and_places_are_independent(self) -> None:
        """Of two masks, both keep an element as often as chance says."""
        layers = self.made(0.5)
        masks = torch.cat([layer(self.x) != 0 for layer in layers]).flatten(1).double()
        pairs = list(combinations(masks, 2))
        pairs += [(row[1:], row[:-1]) for row in masks] + [(row[64:], row[:-64]) for row in masks]
        for a, b in pairs:
            assert abs(float((a * b).mean()) - 0.25) < 5 * (0.1875 / len(a)) ** 0.5

    def test_outside_training_nothing_is_dropped(self) -> None:
        assert torch.equal(self.made().eval()(self.x), self.x)
        assert torch.equal(self.made(0.0)(self.x), self.x)
