from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

from dsl.core import sphere
from dsl.core.streams import stream
from dsl.models import converter as module
from dsl.models.converter import Converter, TableValues, UnitValues
from tests.conftest import assert_near

V, D, H = 9, 4, 12


def unit_form(**changes: float) -> Converter:
    return Converter(V, UnitValues(D, H), **changes)


def table_form(**changes: float) -> Converter:
    return Converter(V, TableValues(V, H), **changes)


@pytest.fixture
def codebook() -> Tensor:
    return sphere.random(V, D)


@for_all(st.integers(0, 2**31), st.floats(0, 1e4))
@settings(max_examples=50, deadline=None)
def test_the_unit_mixture_never_leaves_the_ball(seed: int, scale: float) -> None:
    codebook = sphere.random(V, D, generator=stream(seed))
    z = scale * torch.randn(8, D, generator=stream(seed, 1))
    converter = unit_form()
    assert isinstance(converter.values, UnitValues)
    m = converter.values.mixture(converter.weights(z, codebook), codebook)
    assert (m.norm(dim=-1) <= 1 + 1e-5).all()


def test_concentration_grows_with_the_snr(codebook: Tensor) -> None:
    """Along γ x_v the mixture's weight on v rises and its distance to x_v falls."""
    converter = unit_form()
    assert isinstance(converter.values, UnitValues)
    snr = torch.linspace(0, 80, 200).unsqueeze(-1)
    q = converter.weights(snr * codebook[3], codebook)
    m = converter.values.mixture(q, codebook)
    assert (q[:, 3].diff() >= -1e-7).all()
    assert ((m - codebook[3]).norm(dim=-1).diff() <= 1e-6).all()
    assert q[-1, 3] > 0.99


@pytest.mark.parametrize("probability", [0.5, 0.99])
@pytest.mark.parametrize("form", [unit_form, table_form])
def test_the_zero_state_reads_mask(form: object, probability: float, codebook: Tensor) -> None:
    converter = form(mask_probability=probability)  # type: ignore[operator]
    q = converter.weights(torch.zeros(1, D), codebook)[0]
    assert float(q[-1].detach()) == pytest.approx(probability)
    torch.testing.assert_close(q[:-1], torch.full((V,), (1 - probability) / V))


def test_the_mask_bias_is_log_99_v_for_fine_tuning() -> None:
    converter = table_form(mask_probability=0.99)
    assert float(converter.bias[-1].detach()) == pytest.approx(math.log(99 * V), rel=1e-6)


def mask_needs_its_zero_key(converter: Converter, codebook: Tensor) -> None:
    """Law 5: q(MASK | z) / q(v | z) falls as e^{-β⟨z, x_v⟩}: MASK's own logit never moves."""
    z = 3 * torch.randn(6, D)
    q = converter.weights(z, codebook)
    odds = (q[:, :-1] / q[:, -1:]).log()
    wanted = converter.beta * z @ codebook.T + converter.bias[:-1] - converter.bias[-1]
    torch.testing.assert_close(odds, wanted, atol=1e-4, rtol=1e-4)


def test_the_mask_key_is_the_zero_vector(codebook: Tensor) -> None:
    mask_needs_its_zero_key(table_form(), codebook)


def test_a_mask_key_off_zero_breaks_the_law(
    codebook: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def moved(keys: Tensor, _: object) -> Tensor:
        return torch.cat([keys, keys[:1]])  # the first token's key instead of zero

    monkeypatch.setattr("dsl.models.converter.nn.functional.pad", moved)
    with pytest.raises(AssertionError):
        mask_needs_its_zero_key(table_form(), codebook)


@pytest.mark.parametrize("form", [unit_form, table_form])
def test_chunks_change_neither_values_nor_gradients(
    form: object, codebook: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    converter = form()  # type: ignore[operator]
    z, weights = torch.randn(2, 7, D), torch.randn(2, 7, H)
    results = []
    for elements in (2**24, 3 * (V + 1)):  # all rows at once; three at a time
        monkeypatch.setattr(module, "CHUNK_ELEMENTS", elements)
        monkeypatch.setattr(module, "KEPT_ELEMENTS", elements)
        table = codebook.clone().requires_grad_()
        converter.zero_grad()
        mixed = converter(z, table)
        (mixed * weights).sum().backward()
        gradients = [p.grad.clone() for p in converter.parameters()]
        results.append([mixed.detach(), table.grad, *gradients])
    for whole, chunked in zip(*results, strict=True):
        assert_near(whole, chunked, 1e-4)


def test_no_chunk_is_wider_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPT-2's vocabulary at length 1024: the L x V matrix of weights never exists."""
    converter = Converter(50_257, UnitValues(8, 4))
    seen = []
    weights = Converter.weights

    def spy(self: Converter, z: Tensor, codebook: Tensor) -> Tensor:
        seen.append(len(z) * (len(codebook) + 1))
        return weights(self, z[:1], codebook).expand(len(z), -1)

    monkeypatch.setattr(Converter, "weights", spy)
    converter(torch.zeros(1, 1024, 8), sphere.random(50_257, 8))
    assert max(seen) <= module.CHUNK_ELEMENTS
    assert sum(seen) == 1024 * 50_258


@pytest.mark.parametrize("form", [unit_form, table_form])
def test_gradients_reach_every_parameter(form: object, codebook: Tensor) -> None:
    converter, table = form(), codebook.requires_grad_()  # type: ignore[operator]
    converter(torch.randn(2, 5, D), table).square().sum().backward()
    for name, parameter in (("codebook", table), *converter.named_parameters()):
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


def test_bfloat16_states_are_weighed_in_float32(codebook: Tensor) -> None:
    z = (100 * codebook).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        q = table_form().weights(z, codebook)
    assert q.dtype == torch.float32
    assert (q.argmax(dim=-1) == torch.arange(V)).all()


def test_an_impossible_mask_probability_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must lie in \(0, 1\), got 1.0"):
        table_form().set_mask_probability(1.0)


def test_no_weight_is_subnormal(codebook: Tensor) -> None:
    """Subnormal weights would make every product with them ten times slower on a CPU."""
    q = table_form().weights(torch.cat([100 * codebook, 1000 * codebook]), codebook)
    assert (q >= torch.finfo(q.dtype).tiny).all()
    torch.testing.assert_close(q.sum(dim=-1), torch.ones(2 * V))
