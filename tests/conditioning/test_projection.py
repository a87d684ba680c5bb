"""Likelihood vectors as states, and what is left over where the codebook is too narrow."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, settings
from hypothesis import given as for_all
from hypothesis import strategies as st

from dsl.conditioning.evidence import represent
from dsl.conditioning.hints import NBest
from dsl.core import sphere
from dsl.core.streams import stream

NARROW = sphere.random(20, 4, generator=torch.Generator().manual_seed(3)).double()


@for_all(st.integers(0, 2**31), st.integers(2, 9), st.booleans())
@example(seed=13801, size=2, simplex=False)  # two rows whose cosine is 0.998
@settings(max_examples=40, deadline=None)
def test_with_room_enough_the_state_says_it_all(seed: int, size: int, simplex: bool) -> None:
    """⟨e, x_v⟩ = ℓ_v + const, and nothing is left."""
    codebook = sphere.simplex(size, dtype=torch.float64)
    if not simplex:
        codebook = sphere.random(size, size + 1, generator=stream(seed), dtype=torch.float64)
    wanted = 2 * torch.randn(3, size, generator=stream(seed, 1)).double()
    e, residual = represent(wanted, codebook)
    said = e @ codebook.T
    torch.testing.assert_close(
        said - said.mean(dim=1, keepdim=True), wanted - wanted.mean(dim=1, keepdim=True)
    )
    assert not residual.any()


@for_all(st.integers(0, 2**31))
@settings(max_examples=20, deadline=None)
def test_what_the_state_cannot_say_the_residual_does(seed: int) -> None:
    """Both together are ℓ up to a constant, whatever d is; ruled out is ruled out."""
    wanted = torch.randn(4, 20, generator=stream(seed)).double()
    wanted[1, :7] = -torch.inf
    e, residual = represent(wanted, NARROW)
    whole = (e @ NARROW.T + residual).softmax(-1)
    torch.testing.assert_close(whole, wanted.softmax(-1), atol=1e-9, rtol=0)
    assert (whole[1, :7] == 0).all()


def test_a_constant_says_nothing() -> None:
    for codebook in (NARROW, sphere.simplex(6, dtype=torch.float64)):
        e, residual = represent(torch.full((2, len(codebook)), 3.0).double(), codebook)
        torch.testing.assert_close(e, torch.zeros_like(e), atol=1e-9, rtol=0)
        assert residual.abs().max() < 1e-6


@pytest.mark.parametrize("codebook", [NARROW, sphere.simplex(20, dtype=torch.float64)])
def test_a_single_possible_token_is_its_endpoint(codebook: torch.Tensor) -> None:
    alone = torch.full((1, 20), -torch.inf).double()
    alone[0, 13] = 2.5
    e, residual = represent(alone, codebook, snr_max=40.0)
    torch.testing.assert_close(e[0], 40.0 * codebook[13])
    assert residual[0, 13] == 0 and (residual[0].isinf().sum() == 19)


def test_the_projection_matches_the_mean_embedding() -> None:
    wanted_row = NBest({3: 0.4, 4: 0.3}).log_likelihood(NARROW).unsqueeze(0)
    e, _ = represent(wanted_row, NARROW)
    ours = (e[0] @ NARROW.T).softmax(-1) @ NARROW
    wanted = wanted_row[0].softmax(-1) @ NARROW
    torch.testing.assert_close(ours, wanted, atol=2e-3, rtol=0)  # the ridge's share


@pytest.mark.parametrize("bad", [-torch.inf, torch.nan])
def test_likelihoods_without_a_possible_token_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="at least one possible token"):
        represent(torch.full((1, 20), bad).double(), NARROW)
