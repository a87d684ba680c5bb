"""What one step of training does: its noise, its gradient's norm, its direction and its average."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest
import torch
from torch import Tensor, nn

from dsl.core.streams import Streams, stream, uniform
from dsl.families.objective import Loss, Objective
from dsl.models.dropout import ItemDropout
from dsl.training.optimizer import Muon, OptimizerConfig, average, optimizer, orthogonal
from dsl.training.trainer import Trainer, TrainerConfig
from tests.conftest import perturbed
from tests.training.test_codebook_gradient import SMALL

T = TypeVar("T")


class Slope(Objective):
    """A loss that falls along one direction, by any steepness; it keeps what it draws."""

    def __init__(self, steepness: float = 1.0) -> None:
        super().__init__()
        self.model = nn.Linear(4, 3, bias=False)
        nn.init.zeros_(self.model.weight)
        direction = torch.randn(3, 4, generator=stream(0))
        self.direction = direction / direction.norm()
        self.steepness = steepness
        self.noise: list[dict[int, float]] = []
        self.forget = ItemDropout(0.5)
        self.dropout: list[dict[int, tuple[float, ...]]] = []

    def forward(self, tokens: Tensor, streams: Streams, places: range, batch: int) -> Loss:
        drawn = uniform((len(places), 1), generator=streams).squeeze(1).tolist()
        self.noise.append(dict(zip(places, drawn, strict=True)))
        kept = self.forget(torch.ones(len(places), 4, 16)).flatten(1).tolist()
        self.dropout.append({place: tuple(row) for place, row in zip(places, kept, strict=True)})
        count = torch.tensor(float(len(places)))
        total = count * self.steepness * (self.model.weight * self.direction).sum()
        return Loss(total, count, {"all": (total.detach(), count)})


@dataclass
class Run:
    """A run of the public trainer, and the weights and their average after each of its steps."""

    folder: Path
    steps: int = 4
    batch: int = 3
    micro_batch: int | None = None
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    seed: int = 1
    weights: list[Tensor] = field(default_factory=list)
    averages: list[Tensor] = field(default_factory=list)

    def __call__(self, objective: Slope) -> Run:
        def look(mean: nn.Linear) -> dict[str, float]:
            self.weights.append(objective.model.weight.detach().clone())
            self.averages.append(mean.weight.detach().clone())
            return {"loss": 0.0}

        Trainer(
            objective,
            lambda step, places, batch: torch.zeros(len(places), 2, dtype=torch.long),
            TrainerConfig(
                self.steps,
                self.batch,
                self.micro_batch,
                self.seed,
                validate_every=1,
                save_every=self.steps,
            ),
            self.optimizer,
            self.folder,
            write_model=lambda model, path: path.mkdir(parents=True, exist_ok=True),
            validator=look,
        ).run()
        return self


def by_step(parts: list[dict[int, T]]) -> list[dict[int, T]]:
    """Put the micro-batches of each step together."""
    steps: list[dict[int, T]] = []
    for part in parts:
        if 0 in part:
            steps.append({})
        steps[-1].update(part)
    return steps


class TestNoise:
    """A function of seed, step and place: never the same twice, always the same again."""

    def test_no_two_steps_and_no_two_places_share_it(self, tmp_path: Path) -> None:
        objective = Slope()
        Run(tmp_path, steps=5)(objective)
        drawn = [value for step in objective.noise for value in step.values()]
        assert len(set(drawn)) == len(drawn) == 15
        kept = [row for step in objective.dropout for row in step.values()]
        assert len(set(kept)) == len(kept) == 15

    def test_micro_batches_and_reruns_repeat_it(self, tmp_path: Path) -> None:
        found = []
        for number, micro in enumerate((None, None, 1)):
            objective = Slope()
            Run(tmp_path / str(number), micro_batch=micro)(objective)
            found.append((by_step(objective.noise), by_step(objective.dropout)))
        assert found[0] == found[1] == found[2]

    def test_another_seed_is_another_noise(self, tmp_path: Path) -> None:
        found = []
        for seed in (1, 2):
            objective = Slope()
            Run(tmp_path / str(seed), seed=seed)(objective)
            drawn = (*objective.noise, *objective.dropout)
            found.append({value for step in drawn for value in step.values()})
        assert not found[0] & found[1]


class TestClipping:
    """With eps far above the gradient, AdamW's first step is lr · gradient/eps: it shows it."""

    @pytest.mark.parametrize(
        "steepness, norm", [(1000.0, 0.5), (0.6, 0.5), (0.4, 0.4), (0.01, 0.01)]
    )
    def test_a_gradient_is_cut_to_the_largest_norm(
        self, tmp_path: Path, steepness: float, norm: float
    ) -> None:
        settings = OptimizerConfig(lr=1.0, eps=1e6, clip=0.5)
        objective = Slope(steepness)
        (weight,) = Run(tmp_path, steps=1, optimizer=settings)(objective).weights
        torch.testing.assert_close(-weight * 1e6, norm * objective.direction, rtol=1e-4, atol=0)


class TestAverage:
    def test_the_share_of_the_beginning_is_one_over_a_binomial(self) -> None:
        """Π_{k<n} (1 + k)/(10 + k) = 1/C(n + 9, 9), while the decay is not reached."""
        update, mean = average(0.9999), torch.ones(1).double()
        for n in range(60):
            assert float(mean) == pytest.approx(1 / math.comb(n + 9, 9), rel=1e-9)
            mean = update(mean, torch.zeros(1), n)

    def test_the_decay_is_its_limit(self) -> None:
        """(1 + n)/(10 + n) passes ½ at n = 8."""
        update = average(0.5)
        kept = [float(update(torch.ones(1), torch.zeros(1), n)) for n in (0, 5, 8, 9, 1000)]
        assert kept == pytest.approx([1 / 10, 6 / 15, 0.5, 0.5, 0.5])

    @pytest.mark.parametrize("decay", [0.9999, 0.3])
    def test_a_run_averages_the_weights_it_passed(self, tmp_path: Path, decay: float) -> None:
        """The average begins as the first weights, not as those before any step."""
        settings = OptimizerConfig(lr=0.1, ema=decay)
        run = Run(tmp_path, steps=6, optimizer=settings)(Slope())
        mean = run.weights[0]
        for n, (weight, ours) in enumerate(zip(run.weights, run.averages, strict=True)):
            if n > 0:
                kept = min(decay, (1 + n) / (10 + n))
                mean = kept * mean + (1 - kept) * weight
            torch.testing.assert_close(ours, mean)
        assert not torch.allclose(run.averages[-1], run.weights[-1])


class TestMuon:
    def test_it_looks_one_step_of_its_momentum_ahead(self) -> None:
        """Gradients g₁, g₂ leave m = (1-μ)(μg₁ + g₂); Nesterov's step follows μm + (1-μ)g₂."""
        model = perturbed(SMALL)
        muon = optimizer(model, OptimizerConfig(kind="muon", lr=1e-2))
        matrix = model.backbone.blocks[0].attn_out.weight
        gradients = [torch.randn(matrix.shape, generator=stream(seed)) for seed in (1, 2)]
        for gradient in gradients:
            before = matrix.detach().clone()
            matrix.grad = gradient.clone()
            muon.step()
        mu = Muon.momentum
        ahead = mu * (mu * gradients[0] + gradients[1]) + gradients[1]
        size = 0.2 * math.sqrt(max(matrix.shape))
        torch.testing.assert_close(
            matrix.detach() - before, -1e-2 * size * orthogonal(ahead), atol=1e-5, rtol=1e-3
        )

    def test_a_gradient_that_turns_back_turns_the_step_at_once(self) -> None:
        """After g and -0.7 g momentum still points along g, and looking ahead against it."""
        model = perturbed(SMALL)
        muon = optimizer(model, OptimizerConfig(kind="muon", lr=1e-2))
        matrix = model.backbone.blocks[0].attn_out.weight
        gradient = torch.randn(matrix.shape, generator=stream(1))
        signs = []
        for factor in (1.0, -0.7):
            before = matrix.detach().clone()
            matrix.grad = factor * gradient
            muon.step()
            signs.append(math.copysign(1, float(((matrix.detach() - before) * gradient).sum())))
        assert signs == [-1, 1]
