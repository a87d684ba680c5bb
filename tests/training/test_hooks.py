"""What the trainer tells an objective: how far the run is, and what a whole step found."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from dsl.core.streams import Streams
from dsl.families.objective import Loss, Objective
from dsl.training.optimizer import OptimizerConfig
from dsl.training.trainer import Trainer, TrainerConfig


class Annealed(Objective):
    """A loss whose slope depends on the progress, and on what earlier steps found."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Linear(3, 2, bias=False)
        nn.init.ones_(self.model.weight)
        self.register_buffer("seen", torch.zeros(2, dtype=torch.float64))
        self.progress = -1.0
        self.heard: list[float] = []

    def begin(self, progress: float) -> None:
        self.progress = progress
        self.heard.append(progress)

    def learn(self, sums: Tensor) -> None:
        self.seen.mul_(0.5).add_(sums)

    def forward(self, tokens: Tensor, streams: Streams, places: range, batch: int) -> Loss:
        count = torch.tensor(float(tokens.numel()))
        slope = (1 + self.progress + float(self.seen.sum())) * self.model.weight
        total = count * slope.square().sum()
        places_and_items = torch.tensor([float(sum(places)), float(len(places))])
        return Loss(total, count, {"all": (total.detach(), count)}, places_and_items)


def run(
    objective: Annealed, folder: Path, steps: int, *, total: int = 8, micro: int | None = None
) -> None:
    """Train for some steps of a run of `total`; cut by a validator that asks it to stop."""
    trainer = Trainer(
        objective,
        lambda step, places, batch: torch.zeros(len(places), 2, dtype=torch.long),
        TrainerConfig(total, 6, micro, validate_every=1, save_every=1),
        OptimizerConfig(lr=0.1),
        folder,
        write_model=lambda model, path: path.mkdir(parents=True, exist_ok=True),
    )

    def stop(event: dict[str, object]) -> None:
        if event.get("step") == steps - 1 < total - 1:
            trainer.stopped = True

    trainer.validator = lambda _: {"loss": 0.0}
    trainer.on_step = stop
    assert trainer.run() == steps


@pytest.mark.parametrize("micro", [None, 1, 4])
def test_an_objective_hears_once_a_step_how_far_the_run_is(
    micro: int | None, tmp_path: Path
) -> None:
    objective = Annealed()
    run(objective, tmp_path, 8, micro=micro)
    assert objective.heard == [step / 8 for step in range(8)]


@pytest.mark.parametrize("micro", [None, 1, 4])
def test_it_gets_back_the_sums_of_the_whole_batch(micro: int | None, tmp_path: Path) -> None:
    """Places 0 to 5 and six items at every step, halved at each later one."""
    objective = Annealed()
    run(objective, tmp_path, 8, micro=micro)
    geometric = 2 - 0.5**7
    assert objective.seen.tolist() == [15 * geometric, 6 * geometric]


def test_a_run_that_is_taken_up_hears_and_knows_the_same(tmp_path: Path) -> None:
    whole, cut, again = Annealed(), Annealed(), Annealed()
    run(whole, tmp_path / "whole", 8)
    run(cut, tmp_path / "cut", 3)
    run(again, tmp_path / "cut", 8)
    assert cut.heard + again.heard == whole.heard
    assert torch.equal(again.seen, whole.seen)
    assert torch.equal(again.model.weight, whole.model.weight)


def test_an_objective_need_not_care() -> None:
    class Plain(Objective):
        def forward(self, tokens: Tensor, streams: Streams, places: range, batch: int) -> Loss:
            raise NotImplementedError

    plain = Plain()
    plain.begin(0.5)
    plain.learn(torch.zeros(1))
    assert plain.own() == {}
