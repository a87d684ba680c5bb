"""Shapes are checked at run time while the tests run."""

from __future__ import annotations

import os
from collections.abc import Callable

import jaxtyping
import pytest
import torch

import dsl
from dsl.samplers import State
from tests.shapes import EVERY, FIRST, _sampled


def assert_refused(call: Callable[[], object]) -> None:
    """Repeat a wrong call: one in EVERY is checked, however many came before."""
    with pytest.raises(jaxtyping.TypeCheckError):
        for _ in range(EVERY):
            call()


def test_a_wrong_shape_is_noticed() -> None:
    x = dsl.oracle.cyclic(5).codebook[None]
    assert_refused(lambda: dsl.observe(x, torch.ones(1, 1)))
    assert_refused(lambda: dsl.core.channel.advance(x[0], x, torch.ones(1, 5)))


def test_a_wrong_field_is_noticed() -> None:
    start = State.blank(2, 3)
    assert_refused(lambda: State(start.tokens, start.fixed, start.nfe, torch.zeros(2, 4)))


@pytest.mark.skipif("DSL_CHECK_ALL" in os.environ, reason="all calls are checked")
def test_first_calls_are_checked_and_some_later_ones() -> None:
    checked: list[int] = []
    call = _sampled(lambda _: None, checked.append)
    for number in range(FIRST + 3 * EVERY):
        call(number)
    assert checked[:FIRST] == list(range(FIRST))
    assert checked[FIRST:] == [EVERY, 2 * EVERY, 3 * EVERY]
