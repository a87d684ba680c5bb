"""Alignment by the fewest changes, and confidences that are put right."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dsl.correction.alignment import align, distance
from dsl.correction.reading import Reading
from dsl.correction.symbol import Symbol
from dsl.correction.trust import Trust, fit, labelled
from dsl.streams import stream

TEXT = st.text(alphabet="abc", max_size=12)


def slow(one: str, other: str) -> int:
    """The textbook's recursion."""
    if not one or not other:
        return len(one) + len(other)
    return min(
        slow(one[1:], other[1:]) + (one[0] != other[0]),
        slow(one[1:], other) + 1,
        slow(one, other[1:]) + 1,
    )


@given(st.text(alphabet="ab", max_size=6), st.text(alphabet="ab", max_size=6))
def test_the_distance_is_the_smallest(one: str, other: str) -> None:
    assert distance(one, other) == slow(one, other)


@given(TEXT, TEXT)
def test_an_alignment_goes_through_both_texts_in_order(one: str, other: str) -> None:
    steps = align(one, other)
    assert [s.read for s in steps if s.read is not None] == list(range(len(one)))
    assert [s.written for s in steps if s.written is not None] == list(range(len(other)))


@given(TEXT, TEXT, TEXT)
def test_the_distance_is_a_metric(one: str, other: str, third: str) -> None:
    assert distance(one, other) == distance(other, one)
    assert (distance(one, other) == 0) == (one == other)
    assert distance(one, third) <= distance(one, other) + distance(other, third)


def test_long_texts_are_refused() -> None:
    with pytest.raises(ValueError, match="page by page"):
        align("a" * 20_001, "a")


def test_a_fit_finds_the_law_that_made_the_labels() -> None:
    """20,000 draws: every band of confidence is as right as the fitted map says, within 0.02."""
    truth = Trust(power=3.0, floor=0.3, ceiling=0.98)
    draws = torch.rand(20_000, 2, generator=stream(0)).tolist()
    sample = [(sure, u < truth(sure)) for sure, u in draws]
    found = fit(sample)
    for sure in (0.05, 0.3, 0.5, 0.7, 0.9, 1.0):
        assert found(sure) == pytest.approx(truth(sure), abs=0.02)


def test_labels_come_from_the_alignment() -> None:
    symbols = [Symbol(c, i, i + 1, 0.1 * (i + 1)) for i, c in enumerate("thc ct")]
    found = labelled(Reading("thc ct", symbols), "the cat")
    assert [right for _, right in found] == [True, True, False, True, True, True]
    assert [sure for sure, _ in found] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])


def test_few_labels_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 200 characters with a confidence, got 1"):
        fit([(0.5, True)])


def test_a_fit_is_kept_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "trust.json"
    Trust(2.0, 0.1, 0.9).write(path)
    assert Trust.read(path) == Trust(2.0, 0.1, 0.9)
    path.write_text('{"power": "much"}')
    with pytest.raises(ValueError, match="power"):
        Trust.read(path)
    path.write_text("[1]")
    with pytest.raises(ValueError, match="not a fitted confidence"):
        Trust.read(path)
    with pytest.raises(FileNotFoundError, match="no fitted confidence"):
        Trust.read(tmp_path / "none.json")
