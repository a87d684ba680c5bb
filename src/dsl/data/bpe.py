"""Which tokenizer a corpus is read with: its characters, learned pieces, a teacher's, or a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from dsl._util.files import locked, write_text
from dsl._util.registry import Registry
from dsl.data import tokenizers
from dsl.data.corpora import BETWEEN, Corpus
from dsl.data.sources import Progress
from dsl.data.tokenizers import END_OF_TEXT, bracketed, read
from dsl.data.windows import decoded

SMALLEST, LARGEST = 256 + 1, 1_000_000
"""Tokens: every byte and the end are among them; room for all is made before any is learned."""
CHUNK = 1 << 20
"""Bytes that are counted at a time."""


def size_of(name: str) -> int | None:
    """Return the N of `bpe-N`, or None if the name is none of these.

    Raises:
        ValueError: if no tokenizer has so many tokens.
    """
    found = re.fullmatch(r"bpe-([0-9]+)", name)
    if found is None:
        return None
    size = int(found[1]) if len(found[1]) < 10 else LARGEST + 1
    if size < SMALLEST:
        raise ValueError(
            f"{name} is smaller than its alphabet: 256 bytes and the end of a document take "
            f"{SMALLEST} tokens"
        )
    if size > LARGEST:
        raise ValueError(f"a learned tokenizer has at most {LARGEST:,} tokens, got {name[:60]!r}")
    return size


def learned(corpus: Corpus, size: int, *, on_progress: Progress | None = None) -> Tokenizer:
    """Return the byte-level BPE of a corpus with so many tokens, learning it on first use.

    If another process is learning it, this one waits and takes what that one learned.
    """
    path = corpus.path.parent / f"bpe-{size}.json"
    if not path.is_file():
        with locked(path.parent, wait=True):
            if not path.is_file():
                made = _learn(corpus, size, on_progress or (lambda *_: None))
                write_text(path, made.to_str(pretty=True))
    return read(path)


def _learn(corpus: Corpus, size: int, told: Progress) -> Tokenizer:
    """Learn merges on the training split; ties go by the order of the ids, so one text has one."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size - 1,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(corpus, f"learning bpe-{size}", told), trainer)
    found = tokenizer.get_vocab_size() + 1
    if found < size:
        raise ValueError(
            f"the training text of {corpus.name!r} is too short for bpe-{size}: it has no more "
            f"than {found} different tokens"
        )
    tokenizer.add_special_tokens([AddedToken(END_OF_TEXT)])
    return bracketed(tokenizer, "", END_OF_TEXT)


def _texts(corpus: Corpus, what: str, told: Progress) -> Iterator[str]:
    begin, end = corpus.range("train")
    done = 0
    for piece in corpus.pieces("train", CHUNK):
        text = decoded(piece, first=not done)
        yield from text.split(BETWEEN.decode()) if corpus.documents is not None else [text]
        done += len(piece)
        told(what, done, end - begin)
    told(f"{what}: merging", 0, 0)


MOST_CHARACTERS = 1024
"""The largest alphabet that is taken for one."""


TOKENIZERS: Registry[Callable[[Corpus, str, Path, Progress], Tokenizer]] = Registry(
    "dsl.tokenizers", "tokenizer"
)
"""Tokenizers that packages offer, as `NAME` or `NAME:ARGUMENT`; each is made for a corpus."""


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
    if size := size_of(name):
        if kept.is_file():
            return tokenizers.read(kept)
        return learned(corpus, size, on_progress=on_progress)
    plugin, _, argument = name.partition(":")
    if plugin in TOKENIZERS:
        return TOKENIZERS[plugin](corpus, argument, cache, on_progress)
    if name != "characters":
        return tokenizers.by_name(name, cache)
    alphabet = corpus.alphabet or corpus.characters()
    if len(alphabet) > MOST_CHARACTERS:
        raise ValueError(
            f"corpus {corpus.name!r} has {len(alphabet)} different characters, more than "
            f"{MOST_CHARACTERS}; set data.tokenizer to bpe-N or to a tokenizer.json"
        )
    return tokenizers.characters(alphabet)
