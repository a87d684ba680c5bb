"""Which tokenizer a corpus is read with: its characters, learned pieces, a teacher's, or a file."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from dsl.data import bpe, smiles, stories, tokenizers
from dsl.data.corpora import Corpus
from dsl.data.sources import Progress

MOST_CHARACTERS = 1024
"""The largest alphabet that is taken for one."""


def tokenizer_of(
    corpus: Corpus, name: str, cache: Path, *, kept: Path, on_progress: Progress
) -> Tokenizer:
    """Return the tokenizer of this name for a corpus.

    Args:
        corpus: What is read.
        name: What a recipe calls it.
        cache: Where tokenizers and teachers are kept.
        kept: Where a run keeps its own: a learned one is taken from there if the run has begun.
        on_progress: Told what is going on.
    """
    if size := bpe.size_of(name):
        if kept.is_file():
            return tokenizers.read(kept)
        return bpe.learned(corpus, size, on_progress=on_progress)
    if name == smiles.NAME:
        return smiles.of_corpus(corpus)
    if name == f"teacher:{stories.NAME}":
        return stories.teacher(cache, on_progress).tokenizer
    if name != "characters":
        return tokenizers.by_name(name, cache)
    alphabet = corpus.alphabet or corpus.characters()
    if len(alphabet) > MOST_CHARACTERS:
        raise ValueError(
            f"corpus {corpus.name!r} has {len(alphabet)} different characters, more than "
            f"{MOST_CHARACTERS}; set data.tokenizer to bpe-N or to a tokenizer.json"
        )
    return tokenizers.characters(alphabet)
