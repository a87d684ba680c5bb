"""Blocks of tokens for training: memory-mapped, and a pure function of seed, step and place.

There is no state between batches, so a run resumes at the exact batch, and ranks need no
communication.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool
from tokenizers import Tokenizer
from torch import Tensor

from dsl._util.files import locked, whole
from dsl.core.types import Tokens
from dsl.data.corpora import (
    BETWEEN,
    Corpus,
    record_tokens,
    token_type,
    tokens_path,
    verify_tokens,
)
from dsl.data.sources import Progress
from dsl.data.tokenizers import encode, ends

CHUNK = 1 << 22
"""Bytes encoded at a time."""


def tokenise(
    corpus: Corpus, split: str, tokenizer: Tokenizer, *, on_progress: Progress | None = None
) -> np.ndarray:
    """Return a split as a memory-mapped array of token ids, encoding it on first use.

    Text is encoded chunk by chunk. Documents are separated by the end token, or by a newline if
    the tokenizer has none.
    """
    path, kind = tokens_path(corpus, split, tokenizer), token_type(tokenizer)
    if not path.is_file():
        with locked(path.parent, wait=True):
            if not path.is_file():
                _write(path, kind, corpus, split, tokenizer, on_progress or (lambda *_: None))
    verify_tokens(path)
    if not path.stat().st_size:
        return np.zeros(0, dtype=kind)
    return np.memmap(path, dtype=kind, mode="r")


def _write(
    path: Path, kind: type, corpus: Corpus, split: str, tokenizer: Tokenizer, progress: Progress
) -> None:
    begin, end = corpus.range(split)
    done = 0
    with whole(path) as part, part.open("wb") as file:
        for piece, size in _encoded(corpus, split, tokenizer):
            file.write(piece.astype(kind).tobytes())
            done += size
            progress(f"encoding {split}", done, end - begin)
    record_tokens(path)


def _encoded(corpus: Corpus, split: str, tokenizer: Tokenizer) -> Iterator[tuple[np.ndarray, int]]:
    """Yield the tokens of every chunk of a split, with its number of bytes."""
    table = _byte_table(tokenizer) if corpus.documents is None else None
    between = ends(tokenizer)[1] if corpus.documents is not None else []
    first = True
    for piece in corpus.pieces(split, CHUNK):
        if table is not None:
            ids = table[np.frombuffer(piece, dtype=np.uint8)]
            if (ids < 0).any():
                strange = chr(piece[int((ids < 0).argmax())])
                raise ValueError(f"the corpus has a character outside the vocabulary: {strange!r}")
            yield ids, len(piece)
            continue
        text = decoded(piece, first=first)
        first = False
        documents = text.split(BETWEEN.decode()) if corpus.documents is not None else [text]
        encoded: list[int] = []
        for number, document in enumerate(documents):
            if number:
                encoded += between or encode(tokenizer, "\n")
            encoded += encode(tokenizer, document)
        yield np.array(encoded, dtype=np.int64), len(piece)


def decoded(piece: bytes, *, first: bool) -> str:
    """Decode a chunk; a split may begin and end inside a character."""
    if first:
        piece = piece.lstrip(bytes(range(0x80, 0xC0)))
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data":
            return piece[: error.start].decode("utf-8")
        raise ValueError(f"the corpus is not UTF-8 text: {error}") from error


def _byte_table(tokenizer: Tokenizer) -> np.ndarray | None:
    """Return the token of every byte if all tokens are ASCII characters, else None."""
    vocabulary = tokenizer.get_vocab()
    if any(len(token) != 1 or not token.isascii() for token in vocabulary):
        return None
    table = np.full(256, -1, dtype=np.int16)
    for token, index in vocabulary.items():
        table[ord(token)] = index
    return table


@dataclass(frozen=True, eq=False)
class Windows:
    """Blocks of one length from a long array of tokens."""

    tokens: np.ndarray
    length: int
    kind: Literal["overlapping", "wrap"] = "overlapping"
    """Windows at random offsets, drawn with replacement; or consecutive blocks, each once per
    epoch, as in MDLM."""
    seed: int = 0
    ends: tuple[Sequence[int], Sequence[int]] = ((), ())
    """Special tokens that begin and end every block."""
    name: str = "corpus"
    """The name in errors."""

    def __post_init__(self) -> None:
        if self.payload < 1:
            raise ValueError(f"a block of {self.length} tokens has no room for text")
        if len(self.tokens) < self.payload:
            raise ValueError(
                f"the {self.name} is shorter than a block: it has {len(self.tokens)} tokens, "
                f"a block {self.payload}"
            )

    @property
    def payload(self) -> int:
        """The number of text tokens in a block."""
        return self.length - len(self.ends[0]) - len(self.ends[1])

    def batch(self, step: int, places: range, global_batch: int) -> Tokens:
        """Return the blocks at these places of the global batch of a step."""
        return self._blocks([self._begin(step, place, global_batch) for place in places])

    def first(self, n: int) -> Tokens:
        """Return the first n consecutive blocks, or all if there are fewer."""
        whole = min(n, len(self.tokens) // self.payload)
        return self._blocks([i * self.payload for i in range(whole)])

    def spread(self, n: int) -> Tokens:
        """Return n consecutive-cut blocks at equal distances, or all if there are fewer."""
        blocks = len(self.tokens) // self.payload
        n = min(n, blocks)
        return self._blocks([i * blocks // n * self.payload for i in range(n)])

    def padding(self, blocks: Tokens) -> Bool[Tensor, "b l"]:
        """Return which tokens are padding; windows have none."""
        return torch.zeros_like(blocks, dtype=torch.bool)

    def _blocks(self, begins: list[int]) -> Tokens:
        rows = np.stack([self.tokens[begin : begin + self.payload] for begin in begins])
        begin, end = (np.tile(np.array(ids, np.int64), (len(rows), 1)) for ids in self.ends)
        return torch.from_numpy(np.concatenate([begin, rows.astype(np.int64), end], axis=1))

    def _begin(self, step: int, place: int, global_batch: int) -> int:
        if self.kind == "overlapping":
            draw = np.random.SeedSequence((self.seed, step, place)).generate_state(1, np.uint64)
            return int(draw[0] % np.uint64(len(self.tokens) - self.payload + 1))
        blocks = len(self.tokens) // self.payload
        return self.payload * shuffled(self.seed, step * global_batch + place, blocks)


def shuffled(seed: int, number: int, blocks: int) -> int:
    """Return the index of the number-th block, in a new random order every epoch.

    The permutation is not stored: a Feistel network on the next power of four is applied until the
    result is below `blocks`.
    """
    epoch, index = divmod(number, blocks)
    half = max(1, ((blocks - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    keys = np.random.SeedSequence((seed, epoch)).generate_state(4, np.uint64)
    while True:
        left, right = index >> half, index & mask
        for key in keys:
            mixed = ((right + 1) * 0x9E3779B97F4A7C15 + int(key)) & 0xFFFFFFFFFFFFFFFF
            mixed ^= mixed >> 29
            mixed = (mixed * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
            left, right = right, left ^ ((mixed >> 32) & mask)
        index = (left << half) | right
        if index < blocks:
            return index
