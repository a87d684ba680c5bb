"""A tokenizer of SMILES, molecules written as text: an atom is a token, whatever its letters."""

from __future__ import annotations

import re

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors

from dsl.data.corpora import BETWEEN, Corpus

NAME = "smiles"
END = "<end>"
"""The special that stands after a molecule."""
PATTERN = r"\[[^\[\]\n]*\]|Br|Cl|%[0-9][0-9]|[\s\S]"
"""An atom in brackets, an atom of two letters, a ring of two digits; else a character."""
MOST = 1024
"""The most tokens a corpus of SMILES may have: one that has more is something else."""


def symbols(text: str) -> list[str]:
    """Cut a text into atoms, bonds, branches and rings."""
    return re.findall(PATTERN, text)


def tokenizer(vocabulary: set[str] | frozenset[str]) -> Tokenizer:
    """Make a tokenizer of these symbols, in the order of their code points; then comes the end.

    Its file remembers that a text is followed by the end, so a block of one molecule ends with it.
    """
    if not vocabulary:
        raise ValueError("a tokenizer of SMILES needs at least one symbol")
    if broken := sorted(symbol for symbol in vocabulary if symbols(symbol) != [symbol]):
        raise ValueError(f"{broken[0]!r} is not one symbol of SMILES")
    ids = {symbol: index for index, symbol in enumerate([*sorted(vocabulary), END])}
    made = Tokenizer(models.WordLevel(ids, unk_token=END))
    made.pre_tokenizer = pre_tokenizers.Split(Regex(PATTERN), "isolated")
    made.decoder = decoders.Fuse()
    made.add_special_tokens([AddedToken(END)])
    made.post_processor = processors.TemplateProcessing(
        single=f"$A {END}", special_tokens=[(END, ids[END])]
    )
    return made


def of_corpus(corpus: Corpus) -> Tokenizer:
    """Make the tokenizer of a corpus: every symbol that occurs in it, in any split."""
    found: set[str] = set()
    for split in corpus.splits:
        for piece in corpus.pieces(split, 1 << 22):
            text = piece.replace(BETWEEN, b"\n").decode("utf-8", errors="replace")
            found.update(symbols(text))
            if len(found) > MOST:
                raise ValueError(
                    f"corpus {corpus.name!r} has more than {MOST} different symbols; "
                    "are its texts SMILES?"
                )
    if corpus.documents is not None:
        found -= {"\n"}  # that is between two documents
    return tokenizer(found)
