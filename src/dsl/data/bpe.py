"""Tokenizers learned from a corpus: byte-level BPE, kept in the cache beside the text.

`bpe-2048` has 2,048 tokens: the 256 bytes, so that any text fits, the merges learned on the
training split, and the special that ends a document.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from dsl.data.corpora import BETWEEN, Corpus
from dsl.data.sources import Progress
from dsl.data.tokenizers import END_OF_TEXT, bracketed, read
from dsl.data.windows import decoded
from dsl.files import locked, write_text

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
