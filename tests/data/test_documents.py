"""Blocks that are documents: what is in them, in which order, and what is refused."""

from __future__ import annotations

import hashlib
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dsl.data.corpora import Corpus, prepare
from dsl.data.document_ends import document, padding
from dsl.data.documents import Documents, blocks
from dsl.data.tokenizers import byte_level, mdlm_text8
from dsl.data.windows import tokenise

END, LENGTH = 9, 6
texts = st.lists(
    st.lists(st.integers(0, 8), min_size=1, max_size=9), min_size=1, max_size=12
)  # fmt: skip
beginnings = st.sampled_from([[], [8], [END]])


def joined(documents: list[list[int]]) -> np.ndarray:
    """Put an end between two documents, as `tokenise` does."""
    ids = [token for text in documents for token in (*text, END)]
    return np.array(ids[:-1])


def corpus_of(written: list[str], folder: Path) -> Corpus:
    file = folder / "texts.jsonl"
    file.write_text("\n".join(json.dumps({"text": text}) for text in written))
    return prepare(str(file), folder / "cache")


@settings(deadline=None)
@given(texts, beginnings)
def test_a_block_is_one_document_its_end_and_padding(
    written: list[list[int]], begin: list[int]
) -> None:
    found = Documents(joined(written), LENGTH, (begin, [END]))
    room = LENGTH - len(begin)
    rows = found.first(99).tolist()
    for row, text in zip(rows, written, strict=True):
        assert row == (begin + text + [END] * LENGTH)[:LENGTH]
        assert document(row, found.ends) == text[:room]
    assert found.cut == sum(len(text) >= room for text in written)
    assert torch.equal(found.spread(99), found.first(99))


@settings(deadline=None)
@given(texts, beginnings)
def test_documents_that_share_keep_their_order_and_their_ends(
    written: list[list[int]], begin: list[int]
) -> None:
    """Every document is in one block, and no block has room for the first of the next one."""
    found = Documents(joined(written), LENGTH, (begin, [END]), share=True)
    room = LENGTH - len(begin)
    rest = list(written)
    held: list[list[list[int]]] = []
    for row in found.first(99).tolist():
        body = row[len(begin) :]
        inside = []
        while rest and (body[: len(rest[0]) + 1] == [*rest[0], END] or not inside):
            text = rest.pop(0)
            inside.append(text)
            body = body[len(text) + 1 :]
        assert set(body) <= {END}
        held.append(inside)
    assert not rest
    for one, other in pairwise(held):
        assert sum(len(text) + 1 for text in one) + len(other[0]) + 1 > room


@pytest.mark.parametrize("share", [False, True])
def test_an_epoch_has_every_block_once_and_the_next_another_order(share: bool) -> None:
    written = [[i % 9] * (1 + i % 3) for i in range(37)]
    found = Documents(joined(written), LENGTH, ([], [END]), share, seed=3)
    n = len(found.spans)
    first, second = (found.batch(epoch, range(n), n).tolist() for epoch in (0, 1))
    assert sorted(first) == sorted(second) == sorted(found.first(n).tolist())
    assert first != second and first != found.first(n).tolist()
    other = Documents(joined(written), LENGTH, ([], [END]), share, seed=4)
    assert other.batch(0, range(n), n).tolist() != first


def test_a_batch_does_not_depend_on_who_asks_for_it() -> None:
    found = Documents(joined([[i % 9, 3] for i in range(50)]), LENGTH, ([], [END]), seed=1)
    whole = found.batch(7, range(8), 8)
    parts = [found.batch(7, range(i, i + 2), 8) for i in range(0, 8, 2)]
    assert torch.equal(whole, torch.cat(parts))
    again = Documents(found.tokens, LENGTH, ([], [END]), seed=1)
    assert torch.equal(whole, again.batch(7, range(8), 8))


def test_an_end_after_the_last_document_changes_nothing() -> None:
    written = joined([[1, 2], [3]])
    closed = np.append(written, END)
    same = [Documents(ids, LENGTH, ([], [END])).first(9).tolist() for ids in (written, closed)]
    assert same[0] == same[1]


def test_padding_is_what_follows_an_end() -> None:
    rows = torch.tensor([[1, 2, END, END, END], [1, END, 2, END, END], [1, 2, 3, 4, 5]])
    expected = [[0, 0, 0, 1, 1], [0, 0, 0, 0, 1], [0] * 5]
    assert padding(rows, ([], [END])).int().tolist() == expected
    begun = torch.tensor([[END, 1, END, END], [END, END, END, END]])
    assert padding(begun, ([END], [END])).int().tolist() == [[0, 0, 0, 1], [0, 0, 1, 1]]
    assert not padding(rows, ([], [])).any()


def test_tokens_that_lie_beside_the_corpus_are_taken_as_they_are(tmp_path: Path) -> None:
    """A corpus that somebody drew keeps the tokens that were drawn, however its text would fall."""
    corpus, tokenizer = corpus_of(["ab", "ba"] * 20, tmp_path), mdlm_text8()
    end = tokenizer.token_to_id("[EOS]")
    drawn = np.array([8, 8, end, 9, end, 10, 10, 10], dtype=np.uint16)
    digest = hashlib.sha256(tokenizer.to_str().encode()).hexdigest()[:12]
    (corpus.path.parent / f"train-{digest}.tokens").write_bytes(drawn.tobytes())
    found = blocks(corpus, tokenise(corpus, "train", tokenizer), 6, "documents", ends=([2], [end]))
    assert [document(row, ([2], [end])) for row in found.first(9).tolist()] == [
        [8, 8],
        [9],
        [10, 10, 10],
    ]


def test_what_has_no_documents_or_no_end_is_refused(tmp_path: Path) -> None:
    one_text = tmp_path / "one.txt"
    one_text.write_text("some words " * 50)
    corpus = prepare(str(one_text), tmp_path / "cache")
    tokens = tokenise(corpus, "train", byte_level())
    with pytest.raises(ValueError, match="is one text and has no documents"):
        blocks(corpus, tokens, 8, "documents", ends=([], [3]))
    with pytest.raises(ValueError, match="an end token, such as bpe-2048"):
        Documents(tokens, 8, ([], []))
    with pytest.raises(ValueError, match="no room for text and its end"):
        Documents(tokens, 2, ([1], [END]))
    with pytest.raises(ValueError, match="the validation split has no documents"):
        Documents(np.zeros(0, np.uint16), 8, ([], [END]), name="validation split")
    with pytest.raises(ValueError, match="1 empty documents of 3, the first of them number 2"):
        Documents(np.array([1, END, END, 2]), 8, ([], [END]))


def test_empty_documents_are_left_out_and_counted(tmp_path: Path) -> None:
    corpus = corpus_of(["one", "", "two", "", "three"] * 20, tmp_path)
    assert (corpus.documents, corpus.empty) == (60, 40)
    assert b"\0\0" not in corpus.path.read_bytes()


def test_splits_begin_and_end_with_whole_documents(tmp_path: Path) -> None:
    written = [f"this is text number {i:04}" for i in range(300)]
    corpus = corpus_of(written, tmp_path)
    found = [corpus.read(split).decode().split("\0") for split in corpus.splits]
    assert [text for split in found for text in split] == written
    shares = [(end - begin) / corpus.size for begin, end in corpus.splits.values()]
    assert all(0.05 < share < 0.15 for share in shares[1:])


def test_a_document_as_long_as_a_split_is_cut(tmp_path: Path) -> None:
    corpus = corpus_of(["a " * 1000], tmp_path)
    assert sum(end - begin for begin, end in corpus.splits.values()) == corpus.size
