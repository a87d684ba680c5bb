"""The codebook is trained through all it does: its states, its read-out and its penalty."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dsl.core import sphere
from dsl.core.snr import LogNormal, Mixed, Roar
from dsl.core.streams import Streams, stream
from dsl.families.mixed_snr import MixedSNRObjective, MixedSNROptions, crowding
from dsl.models.config import ModelConfig
from dsl.models.dsl import DSLModel
from tests.conftest import perturbed

SMALL = ModelConfig(
    7, codebook_dim=4, hidden_dim=16, cond_dim=4, n_blocks=1, n_heads=2, dropout=0.0
)
TOKENS = torch.randint(7, (6, 5), generator=torch.Generator().manual_seed(0))

OBJECTIVES = {
    "cross-entropy": MixedSNROptions(Mixed(weight=0.7)),
    "embedding-mse": MixedSNROptions(Mixed(weight=0.7), loss="embedding-mse"),
    "penalised": MixedSNROptions(Mixed(weight=0.7), codebook_penalty=2.0),
    "low SNR": MixedSNROptions(Mixed(LogNormal(0.0, 0.3), weight=1.0)),
    "endpoints": MixedSNROptions(Mixed(endpoint=Roar(snr_max=4.0, snr_min=0.5), weight=0.0)),
}


def loss(model: DSLModel, config: MixedSNROptions) -> Tensor:
    """The loss of one batch under one and the same noise."""
    streams = Streams.derive(0, range(6))
    return MixedSNRObjective(model, config)(TOKENS, streams, range(6), 6).mean


def small() -> DSLModel:
    """A model in float64, so that differences of its loss mean something."""
    return perturbed(SMALL).double()


def slope(model: DSLModel, config: MixedSNROptions, direction: Tensor) -> float:
    """Move the codebook both ways along a direction and compare the losses."""
    step = 1e-3
    weight = model.sphere.weight
    values = []
    with torch.no_grad():
        for sign in (1, -1):
            weight.add_(direction, alpha=sign * step)
            values.append(float(loss(model, config)))
            weight.sub_(direction, alpha=sign * step)
    return (values[0] - values[1]) / (2 * step)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_gradient_is_the_slope_of_the_loss(name: str) -> None:
    """Four directions, each against a central difference."""
    model, config = small(), OBJECTIVES[name]
    loss(model, config).backward()
    gradient = model.sphere.weight.grad
    assert gradient is not None
    scale = float(gradient.norm())
    for seed in range(4):
        direction = sphere.random(7, 4, generator=stream(seed), dtype=torch.float64)
        ours = float((gradient * direction).sum())
        wanted = slope(model, config, direction)
        # the head's logits are float32: their rounding over the step, and the step's own square
        assert abs(ours - wanted) < 2e-3 * (1 + scale)


def test_the_penalty_alone_spreads_a_codebook() -> None:
    """Down its gradient, a crowded table of d + 1 tokens comes to the simplex's 1/d²."""
    weight = sphere.random(4, 3, generator=stream(0), dtype=torch.float64).requires_grad_()
    with torch.no_grad():
        weight.mul_(0.3).add_(torch.tensor([1.0, 0, 0]).double())
    adam = torch.optim.Adam([weight], lr=0.03)
    for _ in range(1500):
        adam.zero_grad()
        crowding(sphere.unit(weight)).backward()
        adam.step()
    assert float(crowding(sphere.unit(weight)).detach()) == pytest.approx(1 / 9, rel=1e-2)
