from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dsl.core import sphere
from tests.conftest import assert_unit_norm


@given(st.integers(2, 40))
def test_simplex_corners_are_equidistant(size: int) -> None:
    table = sphere.simplex(size, dtype=torch.float64)
    gram = table @ table.T
    wanted = torch.eye(size).double() * (1 + 1 / (size - 1)) - 1 / (size - 1)
    torch.testing.assert_close(gram, wanted, atol=1e-12, rtol=0)


def test_a_simplex_may_live_in_more_dimensions_but_not_in_fewer() -> None:
    assert_unit_norm(sphere.simplex(5, 9))
    with pytest.raises(ValueError, match="at least 4 dimensions, got 3"):
        sphere.simplex(5, 3)


def test_every_arrangement_is_on_the_sphere() -> None:
    for table in (
        sphere.circle(7),
        sphere.simplex(7),
        sphere.simplex(1),
        sphere.random(7, 3),
        sphere.projected(torch.randn(7, 20), 3),
    ):
        assert_unit_norm(table)


def test_projection_keeps_neighbours() -> None:
    table = torch.randn(50, 200)
    table[1] = table[0] + 0.1 * torch.randn(200)
    near = sphere.projected(table, 64)
    similarity = near @ near[0]
    assert similarity[1:].argmax() == 0
