from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from dsl.data import tokenizers as ours
from dsl.data.tokenizers import (
    _byte_characters,
    _panics,
    by_name,
    byte_level,
    characters,
    decode,
    encode,
    ends,
    gpt2,
    mdlm_text8,
    read,
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
    with pytest.raises(ValueError, match="must have distinct characters"):
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
    with pytest.raises(ValueError, match="does not decode to the same text"):
        encode(tokenizer, "banana")


MDLM = mdlm_text8()
LETTERS = characters("aé\n ,b'")
BYTES = byte_level()


@pytest.mark.parametrize("tokenizer", [LETTERS, BYTES, REBUILT, MDLM])
@given(st.lists(st.sampled_from(["a", "b", "ab", "é", " ", "\n", ",", "'", "'s", "  "])))
def test_a_text_in_pieces_is_the_text_as_a_whole(tokenizer: Tokenizer, parts: list[str]) -> None:
    """Wherever pieces of every size end; and a text that is refused is refused alike."""
    text = "".join(parts)
    whole = tokenizer.encode(text, add_special_tokens=False).ids
    if decode(tokenizer, whole) != text:
        whole = None
    for size in (1, 2, 5):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ours, "PIECE", size)
            if whole is None:
                with pytest.raises(ValueError, match="outside the model's vocabulary"):
                    encode(tokenizer, text)
            else:
                assert encode(tokenizer, text) == whole


def test_long_texts_do_fall_into_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Except where a special stands in the text, or the tables are others."""
    monkeypatch.setattr(ours, "PIECE", 4)
    text = "ab ab ab, ab ab"
    pieces = {
        "letters": list(ours._pieces(LETTERS, text)),
        "bytes": list(ours._pieces(BYTES, text)),
        "gpt2": list(ours._pieces(REBUILT, text)),
    }
    assert pieces["letters"] == pieces["bytes"] == ["ab a", "b ab", ", ab", " ab"]
    assert pieces["gpt2"] == ["ab ab", " ab,", " ab ab"]
    special = text + "<|endoftext|>" + text
    assert list(ours._pieces(REBUILT, special)) == [special]
    other = characters("ab ,")
    other.normalizer = normalizers.Lowercase()
    assert list(ours._pieces(other, text)) == [text]
    assert encode(MDLM, "ab[EOS]ab") == [7, 8, 3, 7, 8]


def test_every_strange_character_is_named_however_long_the_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ours, "PIECE", 4)
    with pytest.raises(ValueError, match="outside the model's vocabulary: '!Z'"):
        encode(characters(TEXT8), "Zebra zebra zebra!")


@pytest.mark.parametrize(
    "vocabulary, reason",
    [
        ({}, "has no tokens"),
        ({"a": 0, "b": 2}, "has 2 tokens; their ids must be 0 … 1, each once, .* for 1"),
        ({"a": 0, "b": 0}, "their ids must be 0 … 1"),
        ({"a": 1}, "their ids must be 0 … 0"),
        ({"a": -1}, "is not a tokenizer"),
        ({"a": 10**30}, "is not a tokenizer"),
        ({"a": "b"}, "is not a tokenizer"),
    ],
)
def test_ids_without_text_are_refused(
    vocabulary: dict[str, object], reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "tokenizer.json"
    table = json.loads(characters("ab").to_str())
    table["model"]["vocab"] = vocabulary
    path.write_text(json.dumps(table))
    with pytest.raises(ValueError, match=reason):
        read(path)


@pytest.mark.parametrize("content", [b"", b"[" * 10**5, b'{"model":' * 10**5, b"\xff", b"null"])
def test_what_is_no_tokenizer_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is not a tokenizer"):
        read(path)


@pytest.mark.parametrize("tokenizer", [LETTERS, BYTES, REBUILT, MDLM])
def test_our_own_tokenizers_are_read_back(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    assert read(path).to_str() == tokenizer.to_str()


def replacing(times: int) -> dict[str, object]:
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}
    return {"type": "Sequence", "normalizers": [step] * times}


@pytest.mark.parametrize(
    "change, message",
    [
        ({"padding": {"strategy": {"Fixed": 50_000_000}, "direction": "Right", "pad_id": 0,
                      "pad_to_multiple_of": None, "pad_type_id": 0, "pad_token": "a"}},
         "padding must not have a fixed length"),
        ({"normalizer": replacing(9)}, "must make texts at most 64 times longer, got 1000000000"),
        ({"normalizer": {"type": "Prepend", "prepend": "a" * 10**6}},
         "must have at most 2,000 characters, got 1,000,000"),
        ([], "must hold one JSON object, got list"),
    ],
)  # fmt: skip
def test_small_files_that_make_long_texts_are_refused(
    change: dict[str, object] | list[object], message: str, tmp_path: Path
) -> None:
    state = json.loads(characters("abc").to_str())
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**state, **change} if isinstance(change, dict) else change))
    with pytest.raises(ValueError, match=message):
        read(path)
    path.write_text(json.dumps({**state, "normalizer": replacing(1)}))
    read(path)


def test_a_panic_of_the_library_is_an_error() -> None:
    panic = type("PanicException", (BaseException,), {})
    with pytest.raises(ValueError, match="it: the tokenizers library failed: why"), _panics("it"):
        raise panic("why")
    with pytest.raises(KeyboardInterrupt), _panics("it"):
        raise KeyboardInterrupt
