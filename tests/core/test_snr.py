from __future__ import annotations

import pytest
import torch

from dsl.core.snr import LogNormal, Mixed, Roar, reveal_set
from dsl.core.streams import Streams

N = 20_000


def test_lognormal_moments(generator: torch.Generator) -> None:
    """20,000 x 4 draws, 4 standard errors."""
    log_snr = LogNormal().sample((N, 4), generator=generator).log()
    assert abs(float(log_snr.mean()) - 1.65) < 4 * 0.9 / (4 * N) ** 0.5
    assert abs(float(log_snr.std()) - 0.9) < 4 * 0.9 / (8 * N) ** 0.5


def test_shared_snr_is_one_number_a_sequence(generator: torch.Generator) -> None:
    snr = LogNormal(shared=True).sample((8, 5), generator=generator)
    assert (snr == snr[:, :1]).all()
    assert len(snr[:, 0].unique()) == 8


def test_reveal_sets_have_uniform_size_and_members(generator: torch.Generator) -> None:
    """K is uniform on {0, …, l-1}; every position is revealed equally often."""
    revealed = reveal_set((N, 5), generator=generator)
    sizes = revealed.sum(dim=1).bincount(minlength=5) / N
    assert len(sizes) == 5
    assert ((sizes - 0.2).abs() < 4 * (0.2 * 0.8 / N) ** 0.5).all()
    members = revealed.double().mean(dim=0)
    assert ((members - 0.4).abs() < 4 * (0.4 * 0.6 / N) ** 0.5).all()


def test_atomic_endpoints_are_two_points(generator: torch.Generator) -> None:
    snr = Roar.atomic(50.0).sample((64, 6), generator=generator)
    assert set(snr.unique().tolist()) == {0.0, 50.0}


def test_smoothed_endpoints_stay_near_the_ends(generator: torch.Generator) -> None:
    snr = Roar().sample((256, 6), generator=generator)
    assert (((snr >= 0) & (snr < 1)) | ((snr >= 80) & (snr <= 100))).all()
    assert len(snr.unique()) > 1000


def test_atomic_is_the_limit_of_smoothed() -> None:
    first = Roar(snr_min=1e-9, c=1 - 1e-9).sample((16, 6), generator=torch.Generator())
    second = Roar.atomic().sample((16, 6), generator=torch.Generator())
    torch.testing.assert_close(first, second, atol=1e-4, rtol=0)


@pytest.mark.parametrize("per", ["sequence", "token"])
def test_mixed_draws_each_branch_with_its_weight(per: str, generator: torch.Generator) -> None:
    law = Mixed(LogNormal(-5.0, 0.1), Roar(snr_min=1.0), 0.7, per)
    low = law.sample((N, 4), generator=generator) < 0.02
    # U(0, 1) also falls below 0.02, but rarely: share of the endpoint branch, masked, below it.
    spill = 0.3 * (1 - 1.5 / 4) * 0.02
    assert abs(float(low.double().mean()) - 0.7 - spill) < 4 * (0.21 / N) ** 0.5
    uniform_rows = ((low.all(dim=1)) | (~low).all(dim=1)).double().mean()
    assert (uniform_rows > 0.95) == (per == "sequence")


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_the_ends_of_the_mixture_are_its_branches(weight: float) -> None:
    snr = Mixed(endpoint=Roar.atomic(), weight=weight).sample((64, 6))
    endpoints = (snr == 0) | (snr == 100)
    assert bool(endpoints.all()) == (weight == 0.0)
    assert bool(endpoints.any()) == (weight == 0.0)


def test_a_sequence_draws_the_same_snr_in_any_batch() -> None:
    whole = Mixed().sample((5, 7), generator=Streams.derive(3, range(5)))
    alone = Mixed().sample((1, 7), generator=Streams.derive(3, [4]))
    assert torch.equal(whole[4:], alone)


@pytest.mark.parametrize(
    "law, message",
    [
        (lambda: LogNormal(sigma=-1.0), "sigma must be >= 0"),
        (lambda: Roar(snr_min=90.0), "0 <= snr_min"),
        (lambda: Roar(c=1.2), "0 < c <= 1"),
        (lambda: Mixed(weight=1.5), r"weight must lie in \[0, 1\]"),
    ],
)
def test_impossible_laws_are_refused(law: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        law()  # type: ignore[operator]
