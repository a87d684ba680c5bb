"""What ranks tell each other: sums, counts, and whom they wait for."""

from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from dsl._util.processes import Process
from dsl.families.mixed_snr import MixedSNRObjective, MixedSNROptions
from dsl.families.objective import Loss
from dsl.training.optimizer import OptimizerConfig
from dsl.training.trainer import Tally, Trainer, TrainerConfig
from tests.training.conftest import small


def trainer(
    told: list[str] | None = None, process: Process | None = None, **accelerator: Any
) -> Trainer:
    """Make a trainer beside a made-up accelerator."""
    made = Trainer(
        MixedSNRObjective(small(), MixedSNROptions()),
        lambda *_: torch.zeros(1, 1),
        TrainerConfig(),
        OptimizerConfig(),
        Path("nowhere"),
        lambda *_: None,
        tell=(told if told is not None else []).append,
        process=process or Process(),
    )
    made.accelerator = SimpleNamespace(device=torch.device("cpu"), **accelerator)  # type: ignore[assignment]
    return made


def test_ranks_add_up_to_the_last_token() -> None:
    """Counts beyond what float32 can tell apart, and every part with its own count."""

    def of_three(flat: Tensor, how: str) -> Tensor:
        assert how == "sum"
        return 3 * flat

    own = Tally(1.5, 2.0**24 + 1, 2.0**25 + 1, 0.0, {"b": (7.0, 2.0), "a": (5.0, 3.0)})
    found = trainer(process=Process(0, 3), reduce=of_three)._reduced(own)
    assert (found.sum, found.count, found.tokens) == (4.5, 3 * (2**24 + 1), 3 * (2**25 + 1))
    assert found.parts == {"a": (15.0, 9.0), "b": (21.0, 6.0)}


def test_all_ranks_wait_before_rank_0_saves(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[Process] = []
    monkeypatch.setattr(Process, "wait", lambda self: waited.append(self))
    second = trainer(process=Process(1, 2))
    second._save(1, second.objective, {})
    assert waited == [Process(1, 2)]


def test_the_first_interrupt_is_answered_and_the_step_is_finished() -> None:
    told: list[str] = []
    made = trainer(told)
    with made._signals():
        signal.raise_signal(signal.SIGINT)
    assert made.stopped and told == ["SIGINT: saving after this step"]


def test_of_no_position_the_mean_is_nothing() -> None:
    nothing = Loss(torch.zeros(()), torch.zeros(()), {})
    assert float(nothing.mean) == 0.0
