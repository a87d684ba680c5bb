from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsl.data.tokenizers import byte_level, characters, decode, encode

TEXT8 = "abcdefghijklmnopqrstuvwxyz "


@given(st.text(TEXT8))
def test_characters_round_trip(text: str) -> None:
    tokenizer = characters(TEXT8)
    ids = encode(tokenizer, text)
    assert ids == [TEXT8.index(character) for character in text]
    assert decode(tokenizer, ids) == text


@given(st.text())
def test_bytes_round_trip_any_text(text: str) -> None:
    tokenizer = byte_level()
    ids = encode(tokenizer, text)
    assert ids == list(text.encode())
    assert decode(tokenizer, ids) == text


def test_strange_characters_are_named() -> None:
    with pytest.raises(ValueError, match="outside the model's vocabulary: '!Z'"):
        encode(characters(TEXT8), "Zebra!")


@pytest.mark.parametrize("alphabet", ["", "aba"])
def test_alphabets_must_be_proper(alphabet: str) -> None:
    with pytest.raises(ValueError, match="characters that all differ"):
        characters(alphabet)
