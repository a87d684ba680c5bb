"""The path audit: how far contours lie apart, for each token that was scored."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
import torch

import dsl
from dsl.likelihoods.estimate import Estimate, Reading
from dsl.likelihoods.path_audit import audit


def reading(nats: list[float], stderr: list[float] | None = None) -> Reading:
    errors = [0.0] * len(nats) if stderr is None else stderr
    return Reading(torch.tensor(nats).double(), torch.tensor(errors).double())


def test_it_is_in_nats_for_each_token_that_was_scored() -> None:
    readings = {"one": reading([3.0, 5.0], [0.3, 0.4]), "other": reading([2.0, 4.0], [0.0, 1.2])}
    for scored in (1, 4, 50):
        found = audit(readings, scored)
        assert found.spread == pytest.approx(2.0 / scored)
        assert found.stderr == pytest.approx(math.sqrt(0.09 + 0.16 + 1.44) / scored)
        assert found.z == pytest.approx(2.0 / 1.3)
        assert found.between == ("one", "other")


def test_the_pair_that_is_furthest_apart_in_errors_is_named() -> None:
    readings = {
        "loose": reading([10.0], [5.0]),
        "tight": reading([1.0], [0.01]),
        "tight too": reading([1.1], [0.01]),
    }
    assert audit(readings, 1).between == ("tight", "tight too")


def test_equal_numbers_without_error_are_no_spread() -> None:
    assert audit({"a": reading([1.0]), "b": reading([1.0])}, 1).z == 0
    assert audit({"a": reading([1.0]), "b": reading([2.0])}, 1).z == math.inf


@pytest.mark.parametrize("n", [0, 1])
def test_it_needs_two_contours(n: int) -> None:
    with pytest.raises(ValueError, match="at least two contours"):
        audit({"shared": Estimate(torch.zeros(1, 2, 3).double()).reading} if n else {}, 3)


@pytest.mark.parametrize("span", [None, (2, 5), (0, 1)])
def test_a_span_is_audited_by_its_own_tokens(span: tuple[int, int] | None) -> None:
    """What is known of the text does not dilute the spread: it is divided by the span alone."""
    texts = ["abcdefab", "fedcbafe", "aabbccdd"]
    report = dsl.likelihood("oracle:markov", texts, span=span, budget=16, cutoff=20.0)
    scored = len(texts) * (8 if span is None else span[1] - span[0])
    assert report.scored == scored
    found = report.audit
    one, other = (report.reading(name) for name in found.between)
    assert found.spread == pytest.approx(abs(float((one.nats - other.nats).sum())) / scored)
    variance = float((one.stderr.square() + other.stderr.square()).sum())
    assert found.stderr == pytest.approx(math.sqrt(variance) / scored)
    worst = max(
        abs(float((report.reading(a).nats - report.reading(b).nats).sum())) / scored
        for a, b in combinations(report.kinds, 2)
    )
    assert 0 < found.spread <= worst + 1e-12


def test_a_span_costs_only_its_own_tokens() -> None:
    """Outside the span every token is known, so that nothing is attributed to it."""
    report = dsl.likelihood("oracle:markov", "abcdefab", span=(2, 5), budget=16, cutoff=20.0)
    for name in report.kinds:
        (tokens,) = report.attributions(name)
        outside = torch.tensor([True, True, False, False, False, True, True, True])
        assert tokens[outside].abs().max() < 1e-9 < tokens[~outside].abs().max()
