"""Top-k and top-p together: the nucleus of the k best, not of all."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dsl.core.streams import stream
from dsl.samplers.draw import Draw


@settings(deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 9), st.floats(0.05, 0.99))
@pytest.mark.parametrize("crossing", ["drop", "keep"])
def test_top_p_sees_only_what_top_k_left(
    crossing: Literal["drop", "keep"], seed: int, k: int, top_p: float
) -> None:
    """Equality of two routes: at once, or top-p of the distribution that top-k made."""
    logits = 2 * torch.randn(4, 9, generator=stream(seed)).double()
    best = Draw(top_k=k).probabilities(logits)
    then = Draw(top_p=top_p, crossing=crossing).probabilities(best.log())
    both = Draw(top_k=k, top_p=top_p, crossing=crossing).probabilities(logits)
    torch.testing.assert_close(both, then)


def test_the_two_best_are_weighed_against_each_other() -> None:
    """Of .4 and .3 the first makes 57%: top-p 0.75 drops the second, although .4 + .3 < .75."""
    p = torch.tensor([[0.1, 0.4, 0.3, 0.2]]).double()
    assert Draw(top_k=2, top_p=0.75).probabilities(p.log())[0].tolist() == [0, 1, 0, 0]
    kept = Draw(top_k=2, top_p=0.5, crossing="keep").probabilities(p.log())[0]
    assert kept.tolist() == [0, 1, 0, 0]
