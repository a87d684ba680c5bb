"""The tokenizer of a corpus: its characters, learned byte-level BPE, a plug-in's, or a file."""

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
"""Vocabulary sizes of learned tokenizers; 256 bytes and the end are always included."""
CHUNK = 1 << 20
"""Bytes read at a time."""


def size_of(name: str) -> int | None:
    """Return the N of `bpe-N`, or None for other names.

    Raises:
        ValueError: if N is too small or too large.
    """
    found = re.fullmatch(r"bpe-([0-9]+)", name)
    if found is None:
        return None
    size = int(found[1]) if len(found[1]) < 10 else LARGEST + 1
    if size < SMALLEST:
        raise ValueError(
            f"bpe-N needs N of at least {SMALLEST}, for 256 bytes and the end token, got {name}"
        )
    if size > LARGEST:
        raise ValueError(f"bpe-N needs N of at most {LARGEST:,}, got {name[:60]!r}")
    return size


def learned(corpus: Corpus, size: int, *, on_progress: Progress | None = None) -> Tokenizer:
    """Return the byte-level BPE tokenizer of a corpus, training it on first use.

    If another process is training it, wait for its result.
    """
    path = corpus.path.parent / f"bpe-{size}.json"
    if not path.is_file():
        with locked(path.parent, wait=True):
            if not path.is_file():
                made = _learn(corpus, size, on_progress or (lambda *_: None))
                write_text(path, made.to_str(pretty=True))
    return read(path)


def _learn(corpus: Corpus, size: int, progress: Progress) -> Tokenizer:
    """Learn merges on the training split; the result is deterministic."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size - 1,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(corpus, f"learning bpe-{size}", progress), trainer)
    found = tokenizer.get_vocab_size() + 1
    if found < size:
        raise ValueError(
            f"the training text of {corpus.name!r} is too short for bpe-{size}: it gives only "
            f"{found} different tokens"
        )
    tokenizer.add_special_tokens([AddedToken(END_OF_TEXT)])
    return bracketed(tokenizer, "", END_OF_TEXT)


def _texts(corpus: Corpus, what: str, progress: Progress) -> Iterator[str]:
    begin, end = corpus.range("train")
    done = 0
    for piece in corpus.pieces("train", CHUNK):
        text = decoded(piece, first=not done)
        yield from text.split(BETWEEN.decode()) if corpus.documents is not None else [text]
        done += len(piece)
        progress(what, done, end - begin)
    progress(f"{what}: merging", 0, 0)


MOST_CHARACTERS = 1024
"""The largest vocabulary of single characters."""


TOKENIZERS: Registry[Callable[[Corpus, str, Path, Progress], Tokenizer]] = Registry(
    "dsl.tokenizers", "tokenizer"
)
"""Plug-in tokenizers, used as `NAME` or `NAME:ARGUMENT`."""


def tokenizer_of(
    corpus: Corpus, name: str, cache: Path, *, kept: Path, on_progress: Progress
) -> Tokenizer:
    """Return the tokenizer of this name for a corpus.

    Args:
        corpus: The text.
        name: The tokenizer's name in a recipe.
        cache: Directory of tokenizers and teachers.
        kept: The run's own file; a resumed run reads its learned tokenizer from there.
        on_progress: Progress callback.
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
