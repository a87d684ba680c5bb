"""Random numbers are float64: float32 has no uniform above 1 - 2^-24, and tails need them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from dsl.core.path import RandomOrder
from dsl.core.snr import reveal_set
from dsl.core.streams import Randomness, Streams, normal, permutation, stream, uniform
from dsl.likelihoods.path_integral import PathIntegral
from dsl.likelihoods.roar import Roar
from dsl.likelihoods.vdm import VdmBound
from dsl.samplers.base import last
from dsl.samplers.registry import sampler
from dsl.samplers.state import State
from tests.samplers.test_conformance import NAMES, network

B, L = 3, 8

Recorded = dict[str, list[Tensor]]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """Everything that torch draws, by the function that drew it."""
    kept: Recorded = {"rand": [], "randn": []}

    def watch(name: str, draw: Callable[..., Tensor]) -> None:
        def watched(*shape: object, **how: object) -> Tensor:
            numbers = draw(*shape, **how)
            kept[name].append(numbers)
            return numbers

        monkeypatch.setattr(torch, name, watched)

    for name in kept:
        watch(name, getattr(torch, name))
    return kept


@pytest.mark.parametrize("name", NAMES)
def test_samplers_draw_float64_whatever_the_network_computes_in(name: str, drawn: Recorded) -> None:
    denoiser = network(name)
    assert next(denoiser.parameters()).dtype is torch.float32
    for numbers in drawn.values():
        numbers.clear()  # what made the network
    last(sampler(name), denoiser, State.blank(B, L), generator=Streams.derive(0, range(B)))
    numbers = [*drawn["rand"], *drawn["randn"]]
    assert numbers
    assert {n.dtype for n in numbers} == {torch.float64}


@pytest.mark.parametrize("estimator", [Roar(2, 2), PathIntegral(draws=2), VdmBound(2, 2)])
def test_estimators_place_their_draws_in_float64(
    estimator: Callable[..., object], drawn: Recorded
) -> None:
    denoiser = network("vp@6" if isinstance(estimator, VdmBound) else "mdlm@6")
    drawn["rand"].clear()
    tokens = torch.zeros(B, L, dtype=torch.long)
    estimator(denoiser, tokens, generator=Streams.derive(0, range(B)))
    assert drawn["rand"]
    assert {numbers.dtype for numbers in drawn["rand"]} == {torch.float64}


def test_orders_and_reveal_sets_are_drawn_in_float64(drawn: Recorded) -> None:
    for draw in (permutation, reveal_set, RandomOrder.draw):
        drawn["rand"].clear()
        draw((B, L), generator=stream(0))  # type: ignore[operator]
        assert {numbers.dtype for numbers in drawn["rand"]} == {torch.float64}


@pytest.mark.parametrize("generator", [None, stream(0), Streams.derive(0, range(4))])
def test_float64_numbers_are_no_widened_float32(generator: Randomness) -> None:
    """All but 2^-29 of them have digits that float32 cannot hold."""
    for draw in (uniform, normal):
        numbers = draw((4, 500), generator=generator, dtype=torch.float64)
        assert numbers.dtype is torch.float64
        assert (numbers != numbers.float().double()).double().mean() > 0.99
