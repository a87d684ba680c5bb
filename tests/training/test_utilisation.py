"""What a step costs: operations are counted exactly, and the run's event holds together."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from benchmarks.training_cost import training
from torch import Tensor, nn

from dsl.core.streams import Streams
from dsl.families.mixed_snr import MixedSNRObjective, MixedSNROptions
from dsl.families.objective import Loss, Objective, counted
from dsl.models.config import ModelConfig
from dsl.models.dsl import DSLModel
from dsl.training.rehearsal import Rehearsal
from dsl.training.utilisation import Meter
from tests.training.conftest import events, train

CPU = torch.device("cpu")


class Product(Objective):
    """One matrix product of each token's row."""

    def __init__(self, wide: int, narrow: int) -> None:
        super().__init__()
        self.model = nn.Linear(narrow, wide, bias=False)

    def forward(self, tokens: Tensor, streams: Streams, places: range, batch: int) -> Loss:
        rows = torch.ones(tokens.numel(), self.model.in_features)
        return Loss(self.model(rows).sum(), counted(tokens), {})


def rehearsed(objective: Objective, length: int, batch: int = 4) -> Rehearsal:
    def batches(step: int, places: range, batch: int) -> Tensor:
        return torch.zeros(len(places), length, dtype=torch.long)

    return Rehearsal.of(objective, batches, batch=batch, most=batch, seed=1, device=CPU)


class TestOperations:
    def test_a_product_costs_twice_its_volume_each_way(self) -> None:
        """Forward 2 mn, and the gradient of the weights as much; the rows have no gradient."""
        rehearsal = rehearsed(Product(5, 7), 3)
        assert rehearsal.flops_per_token() == 2 * 2 * 5 * 7
        assert rehearsal.products() == [(5, 7)] and rehearsal.width() == 7

    def test_attention_is_counted(self) -> None:
        """Two products of L x h a token and block, three times each: 12 h L² a sequence and block.

        All else is linear in L, so the second difference shows nothing but attention.
        """
        shape = ModelConfig(
            7, codebook_dim=6, hidden_dim=16, cond_dim=4, n_blocks=3, n_heads=2, dropout=0.0
        )
        objective = MixedSNRObjective(DSLModel(shape), MixedSNROptions())
        tries = [rehearsed(objective, length) for length in (8, 16, 24)]
        a, b, c = (each.flops_per_token() * each.tokens.numel() for each in tries)
        squares = 24**2 - 2 * 16**2 + 8**2
        assert a - 2 * b + c == pytest.approx(4 * 3 * 12 * 16 * squares)
        assert rehearsed(objective, 8).width() == 16


def test_items_come_from_all_over_the_batch() -> None:
    """As many as there is room for, and no more than a micro-batch."""
    assert rehearsed(Product(2, 2), 3, batch=64).places == range(64)
    assert rehearsed(Product(2, 2), 2048, batch=64).places == range(0, 64, 32)
    assert rehearsed(Product(2, 2), 9999, batch=64).places == range(0, 64, 64)


class TestMeter:
    def test_the_first_step_warms_up(self) -> None:
        meter = Meter(100.0, 4000.0, 8, "float32")
        assert meter.found() is None
        meter.add(10, 5.0)
        first = meter.found()
        assert first is not None and first.tokens_per_second == 2.0
        for _ in range(3):
            meter.add(10, 0.5)
        found = meter.found()
        assert found is not None
        assert found.tokens_per_second == 20.0 and found.flops_per_second == 2000.0
        assert found.share == 0.5 and "50% of a plain float32 product of width 8" in found.line

    def test_without_products_there_is_nothing_to_say(self) -> None:
        class Nothing(Product):
            def forward(self, tokens: Tensor, streams: Streams, places: range, batch: int) -> Loss:
                return Loss(self.model.weight.sum(), counted(tokens), {})

        meter = Meter.of(rehearsed(Nothing(2, 2), 3), "float32")
        meter.add(10, 1.0)
        assert meter.event(1) is None


def test_a_run_says_what_it_reached(
    tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path, cache) == 0
    (found,) = [event for event in events(tmp_path) if "utilisation" in event]
    assert found["step"] == 12
    reached = found["utilisation"]
    numbers = [value for value in reached.values() if isinstance(value, float)]
    assert len(numbers) == 5 and all(math.isfinite(n) and n > 0 for n in numbers)
    assert reached["flops_per_second"] == pytest.approx(
        reached["tokens_per_second"] * reached["flops_per_token"]
    )
    assert reached["share"] == pytest.approx(
        reached["flops_per_second"] / reached["product_flops_per_second"]
    )
    assert (reached["precision"], reached["width"]) == ("float32", 64)
    assert "of a plain float32 product of width 64" in " ".join(capsys.readouterr().err.split())
    assert train(tmp_path, cache) == 0  # nothing is left to do, so nothing is measured
    assert len([event for event in events(tmp_path) if "utilisation" in event]) == 1


def test_the_benchmark_says_it_too() -> None:
    found = training(length=8, batch=2, pairs=2)
    assert found.utilisation == pytest.approx(
        found.flops_per_second / found.product_flops_per_second
    )
    assert 0 < found.utilisation < math.inf and found.flops_per_token > 0
