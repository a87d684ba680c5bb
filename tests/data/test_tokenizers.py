from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from dsl.data.tokenizers import (
    _byte_characters,
    by_name,
    byte_level,
    characters,
    decode,
    encode,
    ends,
    gpt2,
    mdlm_text8,
)

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


def small_bpe() -> Tokenizer:
    """Train a byte-level BPE the library's own way."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=_byte_characters(), show_progress=False
    )
    tokenizer.train_from_iterator([SENTENCE * 20], trainer)
    return tokenizer


SENTENCE = "The cat sat on the mat, that the hat's owner had matted; what a cat, what a mat! "
KNOWN = small_bpe()
BYTE_OF = {character: byte for byte, character in enumerate(_byte_characters())}
REBUILT = gpt2(
    [
        bytes(BYTE_OF[c] for c in piece)
        for piece, _ in sorted(KNOWN.get_vocab().items(), key=lambda item: item[1])
    ]
)


@given(st.text(alphabet="thecasmonw ,'!é"))
def test_merges_follow_from_the_pieces(text: str) -> None:
    """GPT-2's table has ranks but no merges: rebuilding a known tokenizer gives the same ids."""
    assert encode(REBUILT, text) == KNOWN.encode(text).ids
    assert decode(REBUILT, encode(REBUILT, text)) == text


def test_gpt2_blocks_begin_and_end_with_its_only_special() -> None:
    end = REBUILT.token_to_id("<|endoftext|>")
    assert end == KNOWN.get_vocab_size()
    assert ends(REBUILT) == ([end], [end])


def test_mdlms_text8_symbols() -> None:
    tokenizer = mdlm_text8()
    assert tokenizer.get_vocab_size() == 34, "[MASK] has no id"
    assert encode(tokenizer, "az ") == [7, 32, 33]
    assert tokenizer.token_to_id("[EOS]") == 3
    with pytest.raises(ValueError, match="outside the model's vocabulary: 'A'"):
        encode(tokenizer, "A")


def test_unknown_tokenizers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown tokenizer 'gpt3'; expected characters, bytes"):
        by_name("gpt3", tmp_path)
    assert by_name("bytes", tmp_path).get_vocab_size() == 256


@pytest.mark.parametrize(
    "template, wanted",
    [("$A", ([], [])), ("[BOS] $A", ([2], [])), ("$A [EOS]", ([], [3])),
     ("[BOS] $A [EOS]", ([2], [3]))],
)  # fmt: skip
def test_specials_are_found_on_their_side(
    template: str, wanted: tuple[list[int], list[int]]
) -> None:
    tokenizer = mdlm_text8()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=template, special_tokens=[("[BOS]", 2), ("[EOS]", 3)]
    )
    assert ends(tokenizer) == wanted


def test_a_tokenizer_that_changes_the_text_is_refused() -> None:
    tokenizer = characters(TEXT8)
    tokenizer.normalizer = normalizers.Replace("a", "b")
    with pytest.raises(ValueError, match="does not give back the text"):
        encode(tokenizer, "banana")
