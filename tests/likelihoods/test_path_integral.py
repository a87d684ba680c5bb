"""The path integral along a contour of one's own, in any precision, and the choice of Γ."""

from __future__ import annotations

import pytest
import torch

from dsl.core import oracle
from dsl.core.path import Tabulated
from dsl.core.streams import stream
from dsl.likelihoods.path_integral import PathIntegral, choose_cutoff

CHAIN = oracle.markov(6, 8)


def crooked(dtype: torch.dtype, cutoff: float = 20.0) -> Tabulated:
    """The even positions first, half way, then all; its corners are floats of either kind."""
    half = torch.zeros(8, dtype=dtype)
    half[::2] = cutoff / 2
    corners = torch.stack([torch.zeros(8, dtype=dtype), half, torch.full_like(half, cutoff)])
    return Tabulated(torch.tensor([0.0, 0.25, 1.0], dtype=dtype), corners)


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_a_contour_of_float32_gives_the_numbers_of_float64(precision: torch.dtype) -> None:
    """Up to the precision of float32, with an oracle of either precision."""
    truth = oracle.markov(6, 8, dtype=precision)
    tokens = CHAIN.sample(5, generator=stream(0))
    single, double = (
        PathIntegral(crooked(dtype), replicates=4, draws=6)(truth, tokens, generator=stream(1))
        for dtype in (torch.float32, torch.float64)
    )
    assert single.values.dtype is double.values.dtype is torch.float64
    torch.testing.assert_close(single.values, double.values, rtol=1e-5, atol=1e-5)


def test_a_contour_of_float32_is_unbiased() -> None:
    tokens = CHAIN.sample(32, generator=stream(0))
    estimate = PathIntegral(crooked(torch.float32), draws=384)(CHAIN, tokens, generator=stream(1))
    wanted = -CHAIN.log_prob(tokens)
    assert abs(float((estimate.nats - wanted).mean())) < 4 * estimate.mean_stderr
    assert estimate.mean_stderr < 0.01 * float(wanted.mean())


def test_the_cutoff_is_chosen_with_the_estimator_that_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its contour, replicates and draws; only Γ differs from candidate to candidate."""
    tried: list[PathIntegral] = []
    terms = PathIntegral.terms

    def watched(self: PathIntegral, *arguments: object, **named: object) -> object:
        tried.append(self)
        return terms(self, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(PathIntegral, "terms", watched)
    mine = PathIntegral("sequential", replicates=3, draws=5, batch_size=7)
    choose_cutoff(
        CHAIN,
        CHAIN.sample(2, generator=stream(0)),
        candidates=(0.1, 0.2, 0.4),
        estimator=mine,
        generator=stream(1),
    )
    assert [one.cutoff for one in tried] == [0.1, 0.2, 0.4]
    for one in tried:
        assert (one.contour, one.replicates, one.draws, one.batch_size) == ("sequential", 3, 5, 7)


@pytest.mark.slow
def test_a_larger_budget_wants_a_larger_cutoff() -> None:
    """The error of the estimate falls with the budget, and the reconstruction must stay below."""
    tokens = CHAIN.sample(16, generator=stream(0))
    few, many = (
        choose_cutoff(
            CHAIN, tokens, estimator=PathIntegral(replicates=r, draws=m), generator=stream(1)
        )
        for r, m in ((2, 1), (16, 256))
    )
    assert few < many


class Sleepy:
    """A denoiser that learns nothing from any state: no Γ is large enough for it."""

    codebook, snr_max, vocab_size = CHAIN.codebook, CHAIN.snr_max, CHAIN.vocab_size
    device = torch.device("cpu")

    def __call__(self, z: torch.Tensor, *, at: torch.Tensor | None = None) -> torch.Tensor:
        logits = torch.zeros(*z.shape[:2], self.vocab_size, dtype=torch.float64)
        return logits if at is None else logits[at]


def test_if_no_cutoff_is_large_enough_the_largest_is_taken() -> None:
    tokens = CHAIN.sample(8, generator=stream(0))
    estimator = PathIntegral(replicates=4, draws=4)
    found = choose_cutoff(
        Sleepy(), tokens, candidates=(1.0, 2.0, 3.0, 4.0), estimator=estimator, generator=stream(1)
    )
    assert found == 4.0
