"""The path of a network with a clock: from its lowest SNR to its highest, as its power says."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dsl.core import oracle
from dsl.core.streams import stream
from dsl.samplers.base import last
from dsl.samplers.clocked import ClockedAncestral
from dsl.samplers.state import State

CHAIN = oracle.markov(4, 5)


class Steered:
    """An exact denoiser that notes the SNRs it is told."""

    snr_range = (0.5, 60.0)
    codebook, vocab_size, device = CHAIN.codebook, CHAIN.vocab_size, CHAIN.device

    def __init__(self) -> None:
        self.told: list[float] = []

    def at_snr(self, z: Tensor, snr: Tensor) -> Tensor:
        assert (snr == snr[0]).all()
        self.told.append(float(snr[0]))
        return CHAIN(z.to(CHAIN.codebook))


@pytest.mark.parametrize("steps", [2, 5, 9])
@pytest.mark.parametrize("power", [1.0, 2.0, 3.0])
def test_the_grid_runs_from_the_lowest_snr_to_the_highest(steps: int, power: float) -> None:
    network = Steered()
    last(ClockedAncestral(steps, power), network, State.blank(3, 5), generator=stream(0))
    low, high = network.snr_range
    assert network.told[0] == pytest.approx(low) and network.told[-1] == pytest.approx(high)
    even = [((snr - low) / (high - low)) ** (1 / power) for snr in network.told]
    torch.testing.assert_close(torch.tensor(even), torch.linspace(0, 1, steps), atol=1e-5, rtol=0)
