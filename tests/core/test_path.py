from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dsl.core.path import RandomOrder, Shared, SNRPath, Tabulated, sequential

L = 4


def tabulated() -> Tabulated:
    corners = torch.tensor([[0.0, 0, 0, 0], [5, 0, 2, 9], [10, 10, 2, 10], [10, 10, 10, 10]])
    return Tabulated(torch.tensor([0, 0.25, 0.5, 1.0]).double(), corners.double())


PATHS = {
    "shared": Shared(L, 10.0),
    "quadratic": Shared(L, 10.0, power=2.0),
    "sequential": sequential(L, 10.0),
    "sequential, cubic": sequential(L, 10.0, power=3.0),
    "random order": RandomOrder(torch.tensor([[2, 0, 3, 1]]), 10.0),
    "tabulated": tabulated(),
}


@pytest.fixture(params=PATHS)
def path(request: pytest.FixtureRequest) -> SNRPath:
    return PATHS[request.param]


def test_paths_are_admissible(path: SNRPath) -> None:
    snr, d_snr = path(torch.linspace(0, 1, 101).double())
    assert (snr[0] == 0).all()
    assert (snr[-1] == 10).all()
    assert (snr.diff(dim=0) >= -1e-12).all()
    assert (d_snr >= 0).all()


def test_the_derivative_integrates_to_the_path(path: SNRPath) -> None:
    middle = (torch.arange(10_000).double() + 0.5) / 10_000
    grown = path(middle)[1].cumsum(dim=0) / 10_000
    torch.testing.assert_close(grown, path(middle + 0.5 / 10_000)[0], atol=1e-2, rtol=0)


def test_sequential_reveals_one_token_after_the_other() -> None:
    snr, d_snr = sequential(L, 10.0)(torch.tensor([0.0, 0.125, 0.25, 1.0]).double())
    wanted = torch.tensor([[0.0, 0, 0, 0], [5, 0, 0, 0], [10, 0, 0, 0], [10, 10, 10, 10]])
    assert torch.equal(snr, wanted.double())
    assert (d_snr.count_nonzero(dim=1) == 1).all()


def test_random_orders_are_drawn_per_sequence(generator: torch.Generator) -> None:
    order = RandomOrder.draw((50, L), generator=generator).order
    assert len(order.unique(dim=0)) > 10


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: Shared(L, -1.0), "snr_max > 0"),
        (lambda: RandomOrder(torch.tensor([[0, 0, 1]])), "permutation of 0 … 2"),
        (lambda: Tabulated(t(0, 1), t([1, 0], [2, 2])), "starts at SNR 0"),
        (lambda: Tabulated(t(0, 0.5, 1), t([0], [2], [1])), "never decreases"),
        (lambda: Tabulated(t(0, 0.5), t([0], [2])), "rise from 0 to 1"),
    ],
)
def test_inadmissible_paths_are_refused(build: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()  # type: ignore[operator]


@pytest.mark.parametrize("corners", [torch.float32, torch.float64])
@pytest.mark.parametrize("asked", [torch.float32, torch.float64])
def test_corners_of_any_precision_are_one_path(corners: torch.dtype, asked: torch.dtype) -> None:
    """It is answered in the precision of the question, and up to rounding it is one answer."""
    exact = tabulated()
    path = Tabulated(exact.times.to(corners), exact.snr.to(corners))
    times = torch.linspace(0, 1, 101).double()
    away = ~torch.isin((100 * times).round(), torch.tensor([25, 50]).double())
    for ours, wanted in zip(path(times.to(asked)), exact(times), strict=True):
        assert ours.dtype is asked
        # away from the corners, where rounding decides which of two slopes it is
        torch.testing.assert_close(ours.double()[away], wanted[away], rtol=1e-5, atol=1e-4)


def t(*values: object) -> Tensor:
    return torch.tensor(values).double()
