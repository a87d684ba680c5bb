"""Tokenizers that are learned from a corpus."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from dsl.data import bpe, tokenizers
from dsl.data.corpora import Corpus, prepare

SENTENCES = [
    "Once upon a time there was a girl.",
    "She had a dog named Max!",
    "They played all day.",
]


def corpus_of(texts: list[str], folder: Path) -> Corpus:
    folder.mkdir(exist_ok=True)
    file = folder / "texts.jsonl"
    file.write_text("\n".join(json.dumps({"text": text}) for text in texts))
    return prepare(str(file), folder / "cache")


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return bpe.learned(corpus_of(SENTENCES * 40, tmp_path_factory.mktemp("bpe")), 300)


@settings(deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_given_back(learned: Tokenizer, text: str) -> None:
    ids = tokenizers.encode(learned, text)
    assert tokenizers.decode(learned, ids) == text


def test_it_has_so_many_tokens_and_the_end_is_the_last(learned: Tokenizer) -> None:
    assert learned.get_vocab_size() == 300
    assert sorted(learned.get_vocab().values()) == list(range(300))
    assert tokenizers.ends(learned) == ([], [299])
    assert learned.id_to_token(299) == "<|endoftext|>"


def test_frequent_words_become_one_token(learned: Tokenizer) -> None:
    assert len(tokenizers.encode(learned, " a dog")) < len(tokenizers.encode(learned, " q xyz"))


def test_a_long_text_is_encoded_as_if_it_were_not_cut(learned: Tokenizer) -> None:
    text = " ".join(SENTENCES * 600)
    assert len(text) > tokenizers.PIECE
    assert tokenizers.encode(learned, text) == learned.encode(text, add_special_tokens=False).ids


def test_one_text_has_one_tokenizer_and_it_is_learned_once(tmp_path: Path) -> None:
    told: list[str] = []
    first = corpus_of(SENTENCES * 40, tmp_path / "one")
    once = bpe.learned(first, 280, on_progress=lambda what, *_: told.append(what))
    assert told[0] == "learning bpe-280"
    told.clear()
    again = bpe.learned(first, 280, on_progress=lambda what, *_: told.append(what))
    other = bpe.learned(corpus_of(SENTENCES * 40, tmp_path / "two"), 280)
    assert not told
    assert once.to_str() == again.to_str() == other.to_str()


def test_what_is_held_out_teaches_nothing(tmp_path: Path) -> None:
    """The merges depend on the training split alone."""
    one = corpus_of([*SENTENCES * 40, "zyx" * 100], tmp_path / "one")
    other = corpus_of([*SENTENCES * 40, "wvu" * 100], tmp_path / "two")
    assert one.read("train") == other.read("train") and one.read("test") != other.read("test")
    assert bpe.learned(one, 290).to_str() == bpe.learned(other, 290).to_str()


@pytest.mark.parametrize(
    "name, message",
    [
        ("bpe-256", "at least 257, for 256 bytes and the end token"),
        ("bpe-0", "at least 257"),
        ("bpe-1000001", "at most 1,000,000"),
        (f"bpe-{'9' * 5000}", "at most 1,000,000"),
    ],
)
def test_sizes_that_cannot_be_are_refused(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bpe.size_of(name)


def test_other_names_are_none_of_these() -> None:
    assert bpe.size_of("bpe-257") == 257
    assert [bpe.size_of(name) for name in ("gpt2", "bpe-", "bpe-x", "bpe-2048.json")] == [None] * 4


def test_a_text_too_short_for_so_many_tokens_is_refused(tmp_path: Path) -> None:
    corpus = corpus_of(SENTENCES, tmp_path)
    with pytest.raises(ValueError, match=r"too short for bpe-4096: it gives only \d+ "):
        bpe.learned(corpus, 4096)
    assert not list(corpus.path.parent.glob("bpe-*"))
