from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from dsl.data.cleaning import prose, records, wikipedia
from dsl.data.corpora import Corpus, prepare, verify
from dsl.data.tokenizers import characters
from dsl.data.windows import Windows, tokenise

PAGE = b"""<page>
 <title>X</title>
 <text xml:space="preserve">The [[dog|Dog]]s of {{a
b}}1984 &amp;quot;run&amp;quot;.
[[de:Hund]] See [http://x.org here] &lt;ref name=a&gt;gone&lt;/ref&gt;
[[Image:a.png|thumb|20px|A caption]] [[Category:Pets|*]] {| table |}</text>
</page>
<page><text xml:space="preserve">#REDIRECT [[Y]]</text></page>"""


def test_the_text8_rules() -> None:
    """Links keep their captions; templates may span lines; redirects vanish."""
    cleaned = b"".join(wikipedia(PAGE)).decode()
    assert " ".join(cleaned.split()) == (
        "the dogs of one nine eight four run see here a caption pets"
    )
    assert "redirect" not in cleaned


def test_records_end_in_a_bracket_and_lose_nothing() -> None:
    assert b"".join(records(PAGE)) == PAGE
    assert all(record.endswith(b">") for record in list(records(PAGE))[:-1])


def test_prose_is_letters_and_single_spaces() -> None:
    assert prose("It's 42 o'clock — ÜBER!") == "it s four two o clock ber"


@pytest.mark.parametrize("name", ["python-docs", "cyclic-7", "markov-6"])
def test_offline_corpora(name: str, tmp_path: Path) -> None:
    corpus = prepare(name, tmp_path)
    assert set(corpus.splits) == {"train", "validation", "test"}
    assert sum(end - begin for begin, end in corpus.splits.values()) == corpus.characters
    assert corpus.alphabet is not None
    assert set(corpus.read("test").decode()) <= set(corpus.alphabet)
    again = prepare(name, tmp_path)
    assert again == corpus
    verify(again)


def test_files_of_ones_own(tmp_path: Path) -> None:
    plain, lines = tmp_path / "a.txt", tmp_path / "b.jsonl"
    plain.write_text("some text " * 50)
    lines.write_text("\n".join(json.dumps({"text": f"line {i}"}) for i in range(9)))
    assert prepare(str(plain), tmp_path / "cache").characters == 500
    assert prepare(str(lines), tmp_path / "cache").read("train").startswith(b"line 0\nline 1")


def test_what_goes_wrong_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown corpus 'texd8'; expected one of text8"):
        prepare("texd8", tmp_path)
    corpus = prepare("cyclic-5", tmp_path)
    with pytest.raises(ValueError, match="has no split 'dev'; expected one of train, validation"):
        corpus.read("dev")
    content = bytearray(corpus.path.read_bytes())
    content[3] ^= 1
    corpus.path.write_bytes(content)
    with pytest.raises(ValueError, match="has changed since it was made"):
        verify(prepare("cyclic-5", tmp_path))
    corpus.path.write_bytes(content[:-1])
    with pytest.raises(ValueError, match="is damaged"):
        prepare("cyclic-5", tmp_path)


def corpus_of(text: str, folder: Path) -> Corpus:
    path = folder / "mine.txt"
    path.write_text(text)
    return prepare(str(path), folder / "cache")


def test_tokens_are_mapped_not_loaded(tmp_path: Path) -> None:
    corpus = corpus_of("abcab" * 100, tmp_path)
    tokens = tokenise(corpus, "train", characters("abc"))
    assert isinstance(tokens, np.memmap)
    assert tokens[:5].tolist() == [0, 1, 2, 0, 1]
    with pytest.raises(ValueError, match="a character outside the vocabulary: 'c'"):
        tokenise(corpus, "train", characters("ab"))


@pytest.mark.parametrize("blocks", [1, 2, 3, 7, 64, 100, 1001])
def test_an_epoch_visits_every_block_once(blocks: int) -> None:
    windows = Windows(np.arange(blocks * 3), 3, "wrap", seed=4)
    for epoch in range(2):
        steps = range(epoch * blocks, (epoch + 1) * blocks)
        first = [int(windows.batch(step, range(1), 1)[0, 0]) for step in steps]
        assert sorted(first) == list(range(0, blocks * 3, 3))
        if blocks > 60:
            assert first != sorted(first)


@pytest.mark.parametrize("kind", ["wrap", "overlapping"])
def test_batches_are_functions_of_step_and_place(kind: str) -> None:
    """Any rank, asked at any time, gives its share of the same global batch."""
    windows = Windows(np.arange(1000) % 250, 8, kind, seed=1)  # type: ignore[arg-type]
    whole = windows.batch(17, range(6), 6)
    shares = [windows.batch(17, range(r * 3, r * 3 + 3), 6) for r in range(2)]
    assert torch.equal(torch.cat(shares), whole)
    assert not torch.equal(whole, windows.batch(18, range(6), 6))


def test_overlapping_windows_begin_anywhere() -> None:
    windows = Windows(np.arange(20), 4)
    begins = {int(windows.batch(step, range(1), 1)[0, 0]) for step in range(400)}
    assert begins == set(range(17))


def test_a_corpus_shorter_than_a_block_is_refused() -> None:
    with pytest.raises(ValueError, match="it has 3 tokens, a block 4"):
        Windows(np.arange(3), 4)
