"""Sentence pieces: beside llama2.c's own rule, whole, restricted, and inside a text."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsl.apps.stories import corpus as stories
from dsl.checkpoints.llama import cut, most_frequent
from dsl.checkpoints.loading import load
from dsl.conditioning.hints import Known, Unknown
from dsl.data.tokenizers import (
    BEGIN,
    BYTES,
    END,
    Pieces,
    byte_level,
    decode,
    encode,
    ends,
    spaced,
    within,
)
from dsl.generation.prompts import parse_gaps
from tests.llamas import small_teacher, tokenizer_bin

WORDS = [" t", "he", " the", " c", "at", " cat", " s", " sat", "on", " on", "th", "her", " ", "a",
         "b", "n", "r", ".", ","]  # fmt: skip
TABLE = tokenizer_bin(WORDS)
COUNT = 259 + sum(len(w) > 1 for w in WORDS) + len({c for w in WORDS for c in w})
PIECES = Pieces.read(TABLE, COUNT, "it")
WHOLE = PIECES.whole()
ALL = list(range(BYTES.stop, COUNT))
TEXTS = st.text("abcehnorst. ,", min_size=1, max_size=40).filter(
    lambda t: "  " not in f" {t}" and t.strip() == t
)


def greedy(text: str, pieces: list[int]) -> list[bytes]:
    """Merge the pair of the best score again and again: the rule of llama2.c."""
    score = {PIECES.texts[p]: PIECES.scores[p] for p in pieces}
    parts = [c.encode() for c in " " + text]
    while True:
        scores = [score.get(a + b, -1e30) for a, b in pairwise(parts)]
        if not scores or max(scores) == -1e30:
            return parts
        best = scores.index(max(scores))
        parts[best : best + 2] = [parts[best] + parts[best + 1]]


@given(TEXTS)
@settings(max_examples=200, deadline=None)
def test_texts_fall_into_the_pieces_of_the_rule(text: str) -> None:
    found = [PIECES.texts[t] for t in encode(WHOLE, text)]
    assert found == greedy(text, ALL)


SPELLING = COUNT - sum(len(word) > 1 for word in WORDS) - 3
"""Bytes and letters, without the three special tokens: they are always kept."""


def named(*texts: bytes) -> list[int]:
    return [p for p in ALL if PIECES.texts[p] in texts]


@given(TEXTS)
@settings(max_examples=100, deadline=None)
def test_what_is_kept_falls_as_it_did(text: str) -> None:
    """A text whose pieces are all kept has the same pieces; any other is spelt by smaller ones."""
    tokenizer, kept = cut(WHOLE, named(b" the", b"at", b" sat"), COUNT, BEGIN)
    found = [PIECES.texts[kept[t]] for t in encode(tokenizer, text)]
    assert b"".join(found).decode() == " " + text
    whole = greedy(text, ALL)
    if set(whole) <= {PIECES.texts[p] for p in kept}:
        assert found == whole


@pytest.mark.parametrize(("room", "merged"), [(3, {b" the", b" t", b"he"}), (2, set())])
def test_a_piece_comes_with_what_it_is_merged_from(room: int, merged: set[bytes]) -> None:
    """And not at all if there is no room for those."""
    tokenizer, kept = cut(WHOLE, named(b" the"), SPELLING + 1 + room, BEGIN)
    assert {PIECES.texts[p] for p in kept if p in ALL and len(PIECES.texts[p]) > 1} == merged
    assert kept[-1] == BEGIN and ends(tokenizer) == ([], [len(kept) - 1])


def test_it_ends_texts_and_knows_lines() -> None:
    newline = BYTES.start + 10
    tokenizer = PIECES.tokenizer([newline, *ALL])
    assert ends(tokenizer) == ([], [tokenizer.token_to_id(END)])
    assert decode(tokenizer, encode(tokenizer, "the cat\nsat")) == "the cat\nsat"


def test_inside_a_text_no_space_is_put_first() -> None:
    tokenizer = PIECES.tokenizer(ALL)
    whole = encode(tokenizer, "the cat sat")
    inner = within(tokenizer)
    assert encode(tokenizer, "the") + encode(inner, " cat sat") == whole
    assert decode(inner, encode(inner, "on")) == "on"
    assert within(byte_level()).to_str() == byte_level().to_str()


@pytest.mark.parametrize(
    ("data", "count", "message"),
    [
        (TABLE[:-1], COUNT, "is damaged at piece"),
        (TABLE[:2], COUNT, "ends after 0 of"),
        (TABLE + b"x", COUNT, "has 1 bytes after"),
        (TABLE, COUNT + 1, f"ends after {COUNT} of {COUNT + 1} pieces"),
    ],
)
def test_a_damaged_table_gets_one_line(data: bytes, count: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Pieces.read(data, count, "it")


def test_only_merges_can_be_cut() -> None:
    with pytest.raises(ValueError, match="only BPE tokenizers"):
        cut(byte_level(), [], 300, 0)


def test_the_most_frequent_come_first() -> None:
    first, second, *_ = most_frequent(WHOLE, ["the the the cat cat sat", "the cat."])
    assert [PIECES.texts[first], PIECES.texts[second]] == [b" the", b" cat"]


def test_a_gap_takes_the_space_of_its_word(tmp_path: Path) -> None:
    """Typed with spaces around it, a gap of one token is one word; of letters it is one letter."""
    small_teacher(tmp_path)
    teacher = load(tmp_path / "teachers" / stories.NAME)
    assert teacher.spaced
    hints = parse_gaps(teacher, "the [1] at the cat")
    assert [isinstance(hint, Unknown) for hint in hints[:3]] == [False, True, False]
    whole = teacher.encode("the cat at the cat")
    assert [hint.token for hint in hints if isinstance(hint, Known)] == [whole[0], *whole[2:]]
    letters = load("oracle:cyclic-7")
    assert not letters.spaced
    assert not spaced(byte_level())
