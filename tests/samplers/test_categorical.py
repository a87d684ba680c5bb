from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dsl.samplers.draw import Draw

P = torch.tensor([[0.1, 0.4, 0.3, 0.2]], dtype=torch.float64)


def kept(draw: Draw) -> list[float]:
    return [round(p, 6) for p in draw.probabilities(P.log())[0].tolist()]


def test_the_crossing_token_is_dropped_or_kept() -> None:
    """Cumulated in order: .4, .7, .9, 1."""
    assert kept(Draw(top_p=0.8)) == [0, 0.571429, 0.428571, 0]
    assert kept(Draw(top_p=0.8, crossing="keep")) == [0, 0.444444, 0.333333, 0.222222]
    assert kept(Draw(top_p=0.3)) == [0, 1, 0, 0]
    assert kept(Draw(top_p=0.3, crossing="keep")) == [0, 1, 0, 0]


def test_top_k_and_temperature() -> None:
    assert kept(Draw(top_k=2)) == [0, 0.571429, 0.428571, 0]
    assert kept(Draw(top_k=9)) == [0.1, 0.4, 0.3, 0.2]
    assert kept(Draw(temperature=0.0)) == [0, 1, 0, 0]
    squared = P.square() / P.square().sum()
    torch.testing.assert_close(Draw(temperature=0.5).probabilities(P.log()), squared)


def test_top_k_comes_before_top_p() -> None:
    """Of the two best, renormalised to .571 and .429, top-p 0.6 keeps the first."""
    assert kept(Draw(top_k=2, top_p=0.6)) == [0, 1, 0, 0]


@given(st.floats(0, 1, exclude_max=True))
def test_drawing_inverts_the_distribution(u: float) -> None:
    token, p = Draw()(P.log(), torch.tensor([u], dtype=torch.float64))
    edges = [0.1, 0.5, 0.8, 1.0]
    wanted = next(i for i, edge in enumerate(edges) if u < edge - 1e-12 or i == 3)
    if all(abs(u - edge) > 1e-9 for edge in edges):
        assert int(token) == wanted
        assert float(p) == pytest.approx(float(P[0, wanted]))


def test_tokens_without_mass_are_never_drawn() -> None:
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]]).expand(3, -1)
    tokens, _ = Draw()(logits, torch.tensor([0.0, 0.5, 1 - 2**-53], dtype=torch.float64))
    assert tokens.tolist() == [1, 3, 3]


def test_the_tail_can_be_reached() -> None:
    """A token of probability 1e-12 exists for float64 uniforms and would not for float32."""
    logits = torch.tensor([[0.0, -27.631]])
    token, p = Draw()(logits, torch.tensor([1 - 1e-13], dtype=torch.float64))
    assert int(token) == 1
    assert float(p) == pytest.approx(1e-12, rel=1e-3)


def test_frequencies_follow_probabilities(generator: torch.Generator) -> None:
    """50,000 draws, 4 standard errors."""
    n = 50_000
    u = torch.rand(n, generator=generator, dtype=torch.float64)
    tokens, _ = Draw()(P.log().expand(n, -1), u)
    shares = tokens.bincount(minlength=4) / n
    assert ((shares - P[0]).abs() < 4 * (P[0] * (1 - P[0]) / n).sqrt()).all()


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"top_p": 0.0}, r"top_p must lie in \(0, 1\], got 0.0"),
        ({"top_p": 1.5}, r"top_p must lie in \(0, 1\]"),
        ({"top_k": 0}, "top_k must be at least 1, got 0"),
        ({"temperature": -1.0}, "temperature must be >= 0, got -1.0"),
        ({"temperature": float("nan")}, "temperature must be >= 0"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Draw(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("temperature", [1e-310, 5e-324, 1e-20, 1e-3])
def test_a_tiny_temperature_takes_the_most_likely_token(temperature: float) -> None:
    """Logits divided by it overflow; the distribution is that of temperature 0 all the same."""
    logits = torch.tensor([[3.0, 900.0, -900.0, 899.0], [-1e30, -2e30, -torch.inf, -3.0]])
    cold = Draw(temperature=temperature, top_p=0.9).probabilities(logits)
    torch.testing.assert_close(cold, Draw(temperature=0.0).probabilities(logits))
