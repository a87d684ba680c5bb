"""ROAR by enumeration: exact to the last digits, so its weights must be too."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from dsl.core import oracle, sphere
from dsl.core.denoiser import Endpoints
from dsl.core.streams import stream
from dsl.likelihoods.roar import Enumerated
from tests.doubles import Double


class Steady(Double):
    """A denoiser in float32 that says 1/e of the right token at every place, whatever is known."""

    codebook = sphere.simplex(2)
    snr_max = 100.0

    def __call__(self, z: Tensor | Endpoints, /, *, at: Tensor | None = None) -> Tensor:
        assert isinstance(z, Endpoints) and at is not None
        row = torch.tensor([-1.0, math.log1p(-math.exp(-1))], dtype=torch.float64)
        return row.expand(int(at.sum()), -1)


@pytest.mark.parametrize("length", [1, 2, 5, 9, 12])
def test_the_weights_of_all_sets_sum_to_one_at_every_position(length: int) -> None:
    """With a loss of one nat everywhere the estimate of a position is the sum of its weights."""
    found = Enumerated(batch_size=4096)(Steady(), torch.zeros(1, length, dtype=torch.long))
    assert found.values.dtype is torch.float64
    torch.testing.assert_close(found.tokens, torch.ones(1, length).double(), atol=1e-12, rtol=0)


@pytest.mark.parametrize("length", [3, 8, 12])
def test_an_oracle_is_scored_to_ten_digits(length: int) -> None:
    truth = oracle.markov(3, length)
    tokens = truth.sample(2, generator=stream(0))
    found = Enumerated(batch_size=4096)(truth, tokens)
    torch.testing.assert_close(found.nats, -truth.log_prob(tokens), atol=1e-10, rtol=0)
    assert (found.stderr == 0).all()
