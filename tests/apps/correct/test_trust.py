"""Alignment by the fewest changes, and confidences that are put right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dsl.apps.correct.errors import NAMED, ErrorModel
from dsl.apps.correct.reading import Reading, Symbol
from dsl.apps.correct.spelling import Spelling
from dsl.apps.correct.trust import Trust, align, distance, fit, labelled
from dsl.checkpoints.loading import load
from dsl.conditioning.hints import Confident, Hint, Known, NBest, Unknown
from dsl.core.streams import stream

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
    """20,000 draws: every band of confidence is as right as the fitted map says, within 0.04."""
    truth = Trust((0.0, 0.6, 1.0), (0.3, 0.4, 0.98))
    draws = torch.rand(20_000, 2, generator=stream(0)).tolist()
    sample = [(sure, u < truth(sure)) for sure, u in draws]
    found = fit(sample)
    for sure in (0.05, 0.3, 0.5, 0.7, 0.9, 1.0):
        assert found(sure) == pytest.approx(truth(sure), abs=0.04)


@settings(max_examples=15)
@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=200, max_size=400))
def test_a_fit_never_falls_and_keeps_the_mean(sample: list[tuple[float, bool]]) -> None:
    found = fit(sample)
    assert list(found.true) == sorted(found.true)
    assert list(found.stated) == sorted(found.stated)
    values = [found(c / 20) for c in range(21)]
    assert values == sorted(values)
    assert found(0.0) == found.true[0] and found(1.0) == found.true[-1]


def test_curly_quotes_and_line_breaks_are_no_errors() -> None:
    symbols = [Symbol(c, i, i + 1, 0.5) for i, c in enumerate("“a\nb”")]
    assert all(right for _, right in labelled(Reading("“a\nb”", symbols), '"a b"'))


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
    Trust((0.2, 0.8), (0.1, 0.9)).write(path)
    assert Trust.read(path) == Trust((0.2, 0.8), (0.1, 0.9))
    path.write_text('{"stated": "much", "true": [1]}')
    with pytest.raises(ValueError, match="stated"):
        Trust.read(path)
    path.write_text("[1]")
    with pytest.raises(ValueError, match="not a fitted confidence"):
        Trust.read(path)
    with pytest.raises(FileNotFoundError, match="no fitted confidence"):
        Trust.read(tmp_path / "none.json")


class TestHints:
    SPELLING = Spelling(load("text8-tiny"))

    def hint(self, symbol: Symbol, **changes: Any) -> Hint:
        token = self.SPELLING.tokens[symbol.text or "a"]
        return ErrorModel(**changes).hint(symbol, token, self.SPELLING)

    def test_confidence_is_the_likelihood_of_what_was_read(self) -> None:
        a = self.SPELLING.tokens["a"]
        assert self.hint(Symbol("a", 0, 1, 0.7)) == Confident(a, 0.7)
        assert self.hint(Symbol("a", 0, 1), rate=0.25) == Confident(a, 0.75)
        assert self.hint(Symbol("a", 0, 1, 1.0)) == Known(a)
        assert self.hint(Symbol("", 0, 1)) == Unknown()
        trusted = self.hint(Symbol("a", 0, 1, 1.0), trust=Trust((0.0, 1.0), (0.0, 0.8)))
        assert trusted == Confident(a, 0.8)

    def test_alternatives_keep_their_proportions(self) -> None:
        """Where confidences are put right, they share the doubt, but for what is left to all."""
        e, o = self.SPELLING.tokens["e"], self.SPELLING.tokens["o"]
        symbol = Symbol("a", 0, 1, 0.9, (("e", 0.06), ("o", 0.02), ("ab", 0.01)))
        stated = self.hint(symbol)
        assert isinstance(stated, NBest)
        assert stated.probabilities[e] == pytest.approx(0.06), "as stated"
        shared = self.hint(symbol, trust=Trust())
        assert isinstance(shared, NBest)
        assert shared.probabilities[e] == pytest.approx(0.6 * 0.1 * 0.75)
        doubted = self.hint(symbol, trust=Trust((0.5,), (0.8,)), spread=0.0)
        assert isinstance(doubted, NBest)
        assert doubted.probabilities[e] == pytest.approx(0.15)
        assert doubted.probabilities[o] == pytest.approx(0.05)
        assert doubted.rest == pytest.approx(0.0)

    def test_more_than_there_is_is_cut(self) -> None:
        e = self.SPELLING.tokens["e"]
        found = self.hint(Symbol("a", 0, 1, 0.9, (("e", 0.8), ("o", 0.8))), spread=0.0)
        assert isinstance(found, NBest)
        assert found.probabilities[e] == pytest.approx(0.05, abs=1e-6)
        gap = self.hint(Symbol("", 0, 1, None, (("e", 0.8), ("o", 0.8))))
        assert isinstance(gap, NBest)
        assert gap.probabilities[e] == pytest.approx(0.5, abs=1e-5)

    @pytest.mark.parametrize("name, near, far", [("keyboard", "s", "p"), ("ocr", "e", "k")])
    def test_what_is_confused_gets_more_of_the_doubt(self, name: str, near: str, far: str) -> None:
        found = self.hint(Symbol("a", 0, 1, 0.9), confusions=NAMED[name]())
        assert isinstance(found, NBest)
        near_one = found.probabilities[self.SPELLING.tokens[near]]
        assert near_one > found.rest / (27 - len(found.probabilities)) > 0
        assert self.SPELLING.tokens[far] not in found.probabilities
        assert sum(found.probabilities.values()) == pytest.approx(0.96)
