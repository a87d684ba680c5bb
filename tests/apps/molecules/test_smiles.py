"""SMILES as tokens: one per atom, and an end token after the molecule."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsl.apps.molecules import corpus as smiles
from dsl.checkpoints.loading import Model
from dsl.conditioning.evidence import Known, Unknown
from dsl.data import catalogue
from dsl.data.catalogue import Origin
from dsl.data.corpora import prepare
from dsl.data.documents import Documents
from dsl.data.tokenizers import decode, encode, ends, read
from dsl.data.windows import tokenise
from dsl.generation.prompts import parse_gaps
from dsl.models.config import ModelConfig
from tests.conftest import perturbed

ATOMS = ["C", "c", "n", "Cl", "Br", "[nH]", "[C@@H]", "%12", "1", "(", ")", "=", "B", "r", "l"]


def test_an_atom_is_a_token() -> None:
    text = "Clc1cc(Br)c%11[nH]c%11c1[N+](=O)[O-]"
    assert smiles.symbols(text) == [
        *("Cl", "c", "1", "c", "c", "(", "Br", ")", "c", "%11", "[nH]", "c", "%11", "c", "1"),
        *("[N+]", "(", "=", "O", ")", "[O-]"),
    ]


@given(st.lists(st.sampled_from(ATOMS), max_size=30))
def test_decoding_inverts_encoding_and_splitting_is_idempotent(parts: list[str]) -> None:
    """C followed by l is chlorine."""
    tokenizer = smiles.tokenizer(frozenset(ATOMS))
    text = "".join(parts)
    ids = encode(tokenizer, text)
    assert decode(tokenizer, ids) == text
    tokens = [tokenizer.id_to_token(index) for index in ids]
    assert tokens == smiles.symbols(text)
    assert [smiles.symbols(token) for token in tokens] == [[token] for token in tokens]


@given(st.text(max_size=40))
def test_the_symbols_of_any_text_join_to_the_text(text: str) -> None:
    assert "".join(smiles.symbols(text)) == text


def test_the_tokenizer_file_keeps_the_end_token(tmp_path: Path) -> None:
    tokenizer = smiles.tokenizer({"C", "Cl"})
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer.to_str())
    for made in (tokenizer, read(path)):
        assert ends(made) == ([], [made.token_to_id(smiles.END)])
        assert made.get_vocab_size() == 3


def test_unknown_symbols_are_refused() -> None:
    tokenizer = smiles.tokenizer({"C", "[nH]"})
    with pytest.raises(ValueError, match="outside the model's vocabulary: 'O'"):
        encode(tokenizer, "CO")
    with pytest.raises(ValueError, match="expected single SMILES symbols, got 'CC'"):
        smiles.tokenizer({"CC"})


def test_a_corpus_has_the_symbols_of_its_molecules(tmp_path: Path) -> None:
    """The 1,200 benzenes have 15 symbols and the end token."""
    corpus = prepare("benzenes", tmp_path)
    tokenizer = smiles.of_corpus(corpus)
    assert corpus.documents == 1200
    assert set(tokenizer.get_vocab()) == {
        *("#", "(", ")", "1", "2", "=", "Br", "C", "Cl", "F", "N", "O", "S", "[nH]", "c"),
        smiles.END,
    }
    tokens = tokenise(corpus, "train", tokenizer)
    blocks = Documents(tokens, 40, ends(tokenizer)).first(8).tolist()
    read_back = [decode(tokenizer, row).split(smiles.END)[0] for row in blocks]
    assert read_back == corpus.read("train").decode().split("\0")[:8]


def test_a_corpus_of_other_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(" ".join(f"[{number}]" for number in range(2000)))
    with pytest.raises(ValueError, match="at most 1024 symbols, got more in"):
        smiles.of_corpus(prepare(str(path), tmp_path))


def test_gaps_beside_atoms_in_brackets() -> None:
    """[4] is a gap of four tokens; [nH] is in the vocabulary, so it is an atom."""
    tokenizer = smiles.tokenizer({"c", "1", "(", ")", "[nH]"})
    config = ModelConfig(
        tokenizer.get_vocab_size(), hidden_dim=8, cond_dim=4, n_blocks=1, n_heads=1, model_length=16
    )
    model = Model("molecules", perturbed(config), tokenizer, 16)
    hints = parse_gaps(model, "c1cc([4])[nH]c1")
    ids = tokenizer.get_vocab()
    known = [ids[s] for s in ("c", "1", "c", "c", "(")], [ids[s] for s in (")", "[nH]", "c", "1")]
    assert hints == [*map(Known, known[0]), *[Unknown()] * 4, *map(Known, known[1])]
    with pytest.raises(
        ValueError, match=r"a gap is written as its length, such as \[12\]; got \[O"
    ):
        parse_gaps(model, "c1cc([4])[O-]c1")


def test_published_splits_are_counted_in_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [b"one", b"two", b"three", b"four", b"five"]
    origin = Origin(
        lambda *_: iter(texts), 0, None, "", "", documents=True, splits={"a": 2, "b": 1, "c": 2}
    )
    monkeypatch.setitem(catalogue.CORPORA._loaded, "counted", origin)
    corpus = prepare("counted", tmp_path)
    assert {s: corpus.read(s).split(b"\0") for s in corpus.splits} == {
        "a": texts[:2],
        "b": texts[2:3],
        "c": texts[3:],
    }
    fewer = replace(origin, make=lambda *_: iter(texts[1:]))
    monkeypatch.setitem(catalogue.CORPORA._loaded, "fewer", fewer)
    with pytest.raises(ValueError, match="should have 5 documents, got 4"):
        prepare("fewer", tmp_path)
