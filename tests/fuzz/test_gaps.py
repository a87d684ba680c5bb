"""Texts with gaps."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from dsl.checkpoints.loading import load
from dsl.conditioning.hints import Known, Unknown
from dsl.generation.prompts import count_characters, parse_gaps
from tests.fuzz.cases import ODD, fuzz, texts

pytestmark = pytest.mark.slow

MODEL = load("text8-tiny")
VALID = ["the capital of [12] is london", "[3]", "a[1]b[2]c", "[100]", "abc [5]"]
pieces = st.lists(
    st.sampled_from(["[", "]", "[3]", "[0]", "[128]", "[999999999]", "[a]", "ab ", "é", *ODD]),
    max_size=12,
).map("".join)
FOUND = ["a[999999999]", "[" * 200_000, "[128]" * 200_000, "the " * 100_000 + "[3]", "[a\nb]"]


def read(text: str) -> None:
    assert count_characters(text) >= 0
    hints = parse_gaps(MODEL, text)
    assert 0 < len(hints) <= MODEL.length
    assert any(isinstance(hint, Unknown) for hint in hints)
    assert all(isinstance(hint, Known | Unknown) for hint in hints)


def test_gaps_are_read_or_refused() -> None:
    fuzz("gaps", texts(VALID) | pieces | st.text(max_size=40), read, FOUND)
