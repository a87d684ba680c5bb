"""Evidence upon evidence: conditioning twice is conditioning on both, on every kind of state."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from dsl.conditioning.evidence import (
    Allowed,
    Confident,
    Evidence,
    Hint,
    NBest,
    Observed,
    Unknown,
    given,
)
from dsl.core import oracle
from dsl.core.denoiser import Denoiser, Endpoints
from tests.conditioning.test_evidence import vectors

# A revealed token at γ_max = 3 is not yet certain, so evidence about it still counts.
SURE = oracle.markov(5, 4)
CHAIN = replace(SURE, snr_max=3.0)
ROW = list[Hint]
FIRST: ROW = [Confident(1, 0.7), Unknown(), NBest({0: 0.4, 3: 0.3}), Unknown()]
SECOND: ROW = [Observed(2, 1.5), Allowed((0, 1, 4)), Unknown(), Confident(4, 0.6)]
THIRD: ROW = [Unknown(), NBest({1: 0.8}), Allowed((0, 3)), Observed(0, 0.7)]


def tilted(*rows: ROW) -> oracle.Markov:
    """The posterior by Bayes' rule, likelihood upon likelihood."""
    truth = CHAIN
    for row in rows:
        truth = truth.tilt(vectors(row, CHAIN.codebook).clamp(min=-300.0))
    return truth


def conditioned(*rows: ROW) -> Denoiser:
    denoiser: Denoiser = CHAIN
    for row in rows:
        # what is ruled out counts as γ_max nats in e: a hundred, where γ_max = 3 would not rule out
        denoiser = given(denoiser, Evidence.of([row], SURE))
    return denoiser


STATES: dict[str, Tensor | Endpoints] = {
    "continuous": torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(0)).double(),
    "all masked": Endpoints(torch.full((3, 4), -1)),
    "some revealed": Endpoints(torch.tensor([[-1, -1, 3, -1], [1, -1, -1, 4], [-1, 0, -1, -1]])),
    "endpoints with evidence": Endpoints(
        torch.tensor([[-1, -1, 3, -1]]).expand(3, -1),
        torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(1)).double(),
    ),
}
NESTS = [(FIRST, SECOND), (SECOND, FIRST), (FIRST, SECOND, THIRD), (FIRST, FIRST)]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("rows", NESTS)
def test_nested_evidence_is_the_posterior_of_all_of_it(rows: tuple[ROW, ...], state: str) -> None:
    ours = conditioned(*rows)(STATES[state]).softmax(-1)
    wanted = tilted(*rows)(STATES[state]).softmax(-1)
    torch.testing.assert_close(ours, wanted, atol=1e-9, rtol=0)
    for fewer in (rows[:1], rows[1:]):
        assert (tilted(*fewer)(STATES[state]).softmax(-1) - wanted).abs().max() > 1e-3


@pytest.mark.parametrize("state", STATES)
def test_chosen_rows_are_rows_of_the_whole(state: str) -> None:
    at = torch.zeros(3, 4, dtype=torch.bool)
    at[0, 1:3], at[2, 0] = True, True
    denoiser = conditioned(FIRST, SECOND)
    torch.testing.assert_close(denoiser(STATES[state], at=at), denoiser(STATES[state])[at])
