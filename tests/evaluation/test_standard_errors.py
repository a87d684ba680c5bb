"""Every error bar is that of a mean of independent values: no smaller, and in the same way."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from tokenizers import Tokenizer, models
from torch import Tensor

from dsl.core import oracle
from dsl.core.denoiser import Endpoints
from dsl.core.streams import Streams, stream
from dsl.evaluation.calibration import answers, calibrate_at, reliability
from dsl.evaluation.suite import Measure, Reference, Settings
from dsl.families.levels import AtSNR
from dsl.likelihoods.estimate import Effort, Estimate, Mean
from tests.doubles import Double

CHAIN = oracle.markov(6, 8)


def measured(values: Tensor) -> float:
    """The error of a measure of texts: the share of repeated n-grams in each, here a given one."""
    size = 100
    rows = [[0] * round(size * float(v)) + list(range(1, 1 + size)) for v in values]
    tokenizer = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    measure = Measure(Settings(ngram=1), Reference("none", ["a"], ["a"]), tokenizer)
    found = measure.texts(["a"] * len(rows), rows)["repetition"]
    shares = torch.tensor([1 - len(set(row)) / len(row) for row in rows])
    assert found["mean"] == pytest.approx(float(shares.mean()))
    return float(found["stderr"]) / float((shares[0] - shares[1]).abs() / 2)


ERRORS: dict[str, Callable[[Tensor], float]] = {
    "replicates": lambda v: float(Estimate(v.reshape(1, -1, 1)).stderr),
    "tokens": lambda v: float(Estimate(v.reshape(1, -1, 1).expand(-1, -1, 2) / 2).stderr),
    "corpus": lambda v: Mean.of(v, torch.zeros_like(v)).stderr,
    "ratio": lambda v: Mean.ratio(v, torch.ones_like(v), torch.zeros_like(v)).stderr,
    "weighted ratio": lambda v: (
        Mean.ratio(3 * v, torch.full_like(v, 3.0), torch.zeros_like(v)).stderr
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_the_error_of_two_values_is_half_their_distance(name: str) -> None:
    """√(Σ(v - v̄)²/(n - 1))/√n, where n = 2."""
    assert ERRORS[name](torch.tensor([3.0, 7.0]).double()) == pytest.approx(2.0)


@pytest.mark.parametrize("name", ERRORS)
def test_squared_errors_average_to_the_variance_of_the_mean(name: str) -> None:
    """Unbiased at any n: 1000 times three values of variance 4 have means of variance 4/3."""
    values = 2 * torch.randn(1000, 3, generator=stream(0)).double() + 5
    squares = torch.tensor([ERRORS[name](row) ** 2 for row in values])
    assert abs(float(squares.mean()) - 4 / 3) < 5 * float(squares.std()) / math.sqrt(1000)


def test_a_measure_of_two_texts_has_the_same_error() -> None:
    assert measured(torch.tensor([0.2, 0.7])) == pytest.approx(1.0)


class Sharpened(Double):
    """An exact denoiser that is three times as sure as it should be."""

    codebook, snr_max = CHAIN.codebook, CHAIN.snr_max

    def __call__(self, z: Tensor | Endpoints, /, *, at: Tensor | None = None) -> Tensor:
        return 3 * CHAIN(z, at=at)


class TestBootstrap:
    """In one bin the calibration error is |mean confidence - accuracy|: a mean of sequences."""

    n, level, seed = 400, AtSNR(1.0), 3
    tokens = CHAIN.sample(n, generator=stream(0))

    def bootstrap(self, resamples: int) -> float:
        found = calibrate_at(
            Sharpened(), self.tokens, self.level, seed=self.seed, bins=1, resamples=resamples
        )
        assert found.ece > 5 * found.ece_stderr, "far from the fold at zero"
        return found.ece_stderr

    def test_it_is_the_error_of_the_mean_over_sequences(self) -> None:
        half = self.n // 2
        streams = Streams.derive(self.seed, range(half, self.n))
        found = answers(Sharpened(), self.tokens[half:], self.level, generator=streams)
        gaps = (found.confidence - found.correct.double()).reshape(half, -1).mean(dim=1)
        exact = float(gaps.std()) / math.sqrt(half)
        # 400 resamples know a standard deviation to 1/√800
        assert self.bootstrap(400) == pytest.approx(exact, rel=5 / math.sqrt(800))

    def test_more_resamples_know_it_better_and_do_not_shrink_it(self) -> None:
        few, many = self.bootstrap(60), self.bootstrap(960)
        assert few == pytest.approx(many, rel=5 / math.sqrt(120))


@pytest.mark.parametrize("bins", [2, 4, 8])
def test_a_bin_holds_its_upper_edge(bins: int) -> None:
    """The bins are ((i-1)/n, i/n]: an answer at i/n is in bin i, one just above it in the next."""
    edges = torch.arange(1, bins + 1).double() / bins
    correct = torch.ones(bins, dtype=torch.bool)
    assert reliability(edges, correct, bins=bins).count == (1,) * bins
    above = reliability(edges[:-1] + 1e-9, correct[1:], bins=bins)
    assert above.count == (0, *[1] * (bins - 1))
    below = reliability(edges - 1e-9, correct, bins=bins)
    assert below.count == (1,) * bins
    assert reliability(torch.zeros(1), correct[:1], bins=bins).count[0] == 1


def test_a_rate_that_all_share_has_no_error() -> None:
    """Σ amounts / Σ counts, where every amount is the same multiple of its own count."""
    counts = torch.tensor([1.0, 5.0, 20.0], dtype=torch.float64)
    found = Mean.ratio(0.3 * counts, counts, torch.zeros(3, dtype=torch.float64))
    assert found.mean == pytest.approx(0.3) and found.stderr < 1e-12


def test_a_single_sequence_has_its_own_error_for_each_count() -> None:
    own = torch.tensor([0.8], dtype=torch.float64)
    found = Mean.ratio(torch.tensor([12.0]), torch.tensor([4.0]), own)
    assert (found.mean, found.stderr) == (3.0, pytest.approx(0.2))


EFFORTS = [(4, 2, 2), (31, 15, 2), (34, 16, 2), (64, 16, 4), (100, 16, 6)]


@pytest.mark.parametrize(("budget", "replicates", "draws"), EFFORTS)
def test_an_effort_has_at_most_sixteen_replicates(budget: int, replicates: int, draws: int) -> None:
    """Never more calls than the budget, and two a replicate at least."""
    effort = Effort(budget)
    assert (effort.replicates, effort.draws) == (replicates, draws)
    assert effort.replicates * effort.draws <= budget
