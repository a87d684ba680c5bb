"""MDLM's times: one in each stratum of the global batch, wherever the batch is computed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dsl.core.denoiser import Endpoints
from dsl.core.streams import Streams
from dsl.families.mdlm import MdlmModel, MdlmObjective, MdlmOptions, MdlmShape

BATCH, LENGTH = 8, 4000
SMALL = MdlmShape(5, hidden_dim=8, cond_dim=4, n_blocks=1, n_heads=2)


class Spy(MdlmModel):
    """A network that knows nothing and keeps the share of masks in each sequence."""

    def __init__(self) -> None:
        super().__init__(SMALL)
        self.shares: list[Tensor] = []

    def forward(self, z: Tensor | Endpoints, /, *, at: Tensor | None = None) -> Tensor:
        assert isinstance(z, Endpoints) and at is not None
        self.shares.append((z.tokens == -1).double().mean(dim=1))
        return torch.zeros(int(at.sum()), 5)


def shares(seed: int, places: range) -> Tensor:
    spy = Spy()
    tokens = torch.zeros(len(places), LENGTH, dtype=torch.long)
    MdlmObjective(spy, MdlmOptions())(tokens, Streams.derive(seed, places), places, BATCH)
    return spy.shares[0]


@pytest.mark.parametrize("places", [range(8), range(4, 8), range(2, 3)])
def test_every_place_of_the_batch_has_its_own_stratum(places: range) -> None:
    """A sequence at time t is masked to a share t: place i's lies in [i, i + 1]/B in every step."""
    slack = 5 * (0.25 / LENGTH) ** 0.5 + 2e-3  # the share's own luck; times end at 1e-3
    for seed in range(5):
        ours = shares(seed, places)
        low = torch.tensor(list(places)).double() / BATCH
        assert (ours > low - slack).all()
        assert (ours < low + 1 / BATCH + slack).all()


def test_inside_its_stratum_a_time_is_uniform() -> None:
    """Its mean and its variance over 200 steps are those of the stratum: no grid."""
    drawn = torch.stack([shares(seed, range(BATCH)) for seed in range(200)])
    inside = (drawn * BATCH - torch.arange(BATCH)).flatten()
    luck = BATCH**2 / LENGTH * (drawn * (1 - drawn)).mean()  # the variance that masking adds
    assert abs(float(inside.mean()) - 0.5) < 0.03
    assert float(inside.var() - luck) == pytest.approx(1 / 12, abs=0.015)
