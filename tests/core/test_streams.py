from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from dsl.core.streams import categorical


@given(st.floats(0, 1, exclude_max=True), st.floats(0.1, 10))
def test_a_draw_inverts_the_distribution_of_weights(u: float, total: float) -> None:
    p = torch.tensor([0.1, 0.4, 0.3, 0.2], dtype=torch.float64)
    drawn = int(categorical(total * p, torch.tensor(u, dtype=torch.float64)))
    below = [0.0, 0.1, 0.5, 0.8, 1.0]
    assert below[drawn] - 1e-12 <= u <= below[drawn + 1] + 1e-12


def test_what_has_no_mass_is_never_drawn() -> None:
    """Also where u times the total rounds up to the total."""
    p = torch.tensor([0.0, 0.5, 0.5, 0.0], dtype=torch.float64)
    u = torch.tensor([0.0, 0.499999, 0.5, 1 - 2**-53, 1.0], dtype=torch.float64)
    for scale in (1.0, 1 - 2**-53, 3.0):
        assert categorical(scale * p.expand(5, 4), u).tolist() == [1, 1, 2, 2, 2]
