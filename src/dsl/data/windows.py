"""Blocks of tokens for training: memory-mapped, and a pure function of seed, step and place.

Nothing is kept between batches, so a run resumes at the exact batch by knowing its step, and the
ranks of a distributed run agree without talking.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from tokenizers import Tokenizer

from dsl.data.corpora import Corpus
from dsl.data.tokenizers import encode
from dsl.types import Tokens

CHUNK = 1 << 22
"""Characters encoded at a time."""


def tokenise(corpus: Corpus, split: str, tokenizer: Tokenizer) -> np.ndarray:
    """Return a split as a memory-mapped array of token ids, encoding it on first use."""
    digest = hashlib.sha256(tokenizer.to_str().encode()).hexdigest()[:12]
    path = corpus.path.parent / f"{split}-{digest}.npy"
    if not path.is_file():
        text = corpus.read(split)
        kind = np.uint8 if tokenizer.get_vocab_size() <= 256 else np.uint32
        table = _byte_table(tokenizer)
        if table is not None:
            ids = table[np.frombuffer(text, dtype=np.uint8)]
            if (ids < 0).any():
                strange = chr(text[int((ids < 0).argmax())])
                raise ValueError(f"the corpus has a character outside the vocabulary: {strange!r}")
            tokens = ids.astype(kind)
        else:
            decoded = text.decode("utf-8")
            parts = [decoded[i : i + CHUNK] for i in range(0, len(decoded), CHUNK)]
            tokens = np.concatenate([np.array(encode(tokenizer, p), dtype=kind) for p in parts])
        part = path.with_suffix(".part.npy")
        np.save(part, tokens)
        os.replace(part, path)
    mapped: np.ndarray = np.load(path, mmap_mode="r")
    return mapped


def _byte_table(tokenizer: Tokenizer) -> np.ndarray | None:
    """Return the token of every byte, if all tokens are single ASCII characters."""
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
    """Windows that begin anywhere, drawn with replacement; or consecutive blocks, every one of
    them once in an epoch, as MDLM does."""
    seed: int = 0

    def __post_init__(self) -> None:
        if len(self.tokens) < self.length:
            raise ValueError(
                f"the corpus is shorter than a block: it has {len(self.tokens)} tokens, "
                f"a block {self.length}"
            )

    def batch(self, step: int, places: range, global_batch: int) -> Tokens:
        """Return the blocks at these places of the global batch of a step."""
        begins = [self._begin(step, place, global_batch) for place in places]
        rows = np.stack([self.tokens[begin : begin + self.length] for begin in begins])
        return torch.from_numpy(rows.astype(np.int64))

    def first(self, n: int) -> Tokens:
        """Return the first n consecutive blocks, or as many as there are."""
        whole = min(n, len(self.tokens) // self.length)
        rows = self.tokens[: whole * self.length].reshape(whole, self.length)
        return torch.from_numpy(rows.astype(np.int64))

    def _begin(self, step: int, place: int, global_batch: int) -> int:
        if self.kind == "overlapping":
            draw = np.random.SeedSequence((self.seed, step, place)).generate_state(1, np.uint64)
            return int(draw[0] % np.uint64(len(self.tokens) - self.length + 1))
        blocks = len(self.tokens) // self.length
        epoch, index = divmod(step * global_batch + place, blocks)
        return self.length * self._order(epoch, index, blocks)

    def _order(self, epoch: int, index: int, blocks: int) -> int:
        """Return where the epoch's permutation sends an index, without storing the permutation.

        A Feistel network on the next power of four, walked until it lands inside.
        """
        half = max(1, ((blocks - 1).bit_length() + 1) // 2)
        mask = (1 << half) - 1
        keys = np.random.SeedSequence((self.seed, epoch)).generate_state(4, np.uint64)
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
