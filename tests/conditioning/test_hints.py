"""Hints about one position: what each says, and which cannot be made."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from dsl.conditioning.hints import Allowed, Confident, Hint, Known, NBest, Observed, Unknown
from dsl.core import sphere

CODEBOOK = sphere.random(5, 3, generator=torch.Generator().manual_seed(0)).double()
HINTS: dict[str, tuple[Hint, list[float]]] = {
    # what is said, and the probabilities it leaves under a uniform prior
    "unknown": (Unknown(), [0.2] * 5),
    "known": (Known(3), [0, 0, 0, 1, 0]),
    "confident": (Confident(1, 0.6), [0.1, 0.6, 0.1, 0.1, 0.1]),
    "certain": (Confident(1, 1.0), [0, 1, 0, 0, 0]),
    "certainly not": (Confident(1, 0.0), [0.25, 0, 0.25, 0.25, 0.25]),
    "n-best": (NBest({0: 0.5, 4: 0.2}), [0.5, 0.1, 0.1, 0.1, 0.2]),
    "distribution": (NBest({i: 0.2 for i in range(5)}), [0.2] * 5),
    "no rest": (NBest({0: 0.7, 2: 0.3}), [0.7, 0, 0.3, 0, 0]),
    "rounded": (NBest({0: 0.1, 1: 0.2, 2: 0.7 - 1e-12}), [0.1, 0.2, 0.7, 0, 0]),
    "allowed": (Allowed((0, 2)), [0.5, 0, 0.5, 0, 0]),
}


@pytest.mark.parametrize("name", HINTS)
def test_a_hint_is_its_distribution(name: str) -> None:
    hint, wanted = HINTS[name]
    p = hint.log_likelihood(CODEBOOK).softmax(-1)
    torch.testing.assert_close(p, torch.tensor(wanted, dtype=torch.float64), atol=1e-9, rtol=0)


@pytest.mark.parametrize("name", HINTS)
def test_what_is_allowed_is_what_has_a_likelihood(name: str) -> None:
    hint, wanted = HINTS[name]
    assert [hint.allows(token) for token in range(5)] == [p > 0 for p in wanted]


def test_an_observation_is_the_channel_without_noise() -> None:
    hint = Observed(2, 3.0)
    torch.testing.assert_close(hint.log_likelihood(CODEBOOK), CODEBOOK @ (3.0 * CODEBOOK[2]))
    assert all(hint.allows(token) for token in range(5))
    torch.testing.assert_close(
        Observed(2, 0.0).log_likelihood(CODEBOOK), Unknown().log_likelihood(CODEBOOK)
    )


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Allowed(()), "at least one token, got none"),
        (lambda: Known(-1), "token must be at least 0, got -1"),
        (lambda: Observed(0, -1.0), "snr must be finite and at least 0, got -1"),
        (lambda: NBest({0: 0.8, 1: 0.5}), "sum to at most 1"),
        (lambda: NBest({0: -0.1}), "must lie in 0 … 1, got -0.1"),
        (lambda: Confident(2, 1.8), "probability must lie in 0 … 1, got 1.8"),
        (lambda: Confident(0, float("nan")), "probability must be finite"),
    ],
)
def test_an_impossible_hint_is_refused_when_it_is_made(
    make: Callable[[], Hint], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make()
