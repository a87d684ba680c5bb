"""Documents as blocks: each followed by the tokenizer's end token, and padded with it.

Documents are the tokens between two ends, so tokens are used as they were written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from dsl.core.types import Tokens
from dsl.data.corpora import Corpus
from dsl.data.document_ends import Ends, padding
from dsl.data.windows import Windows, shuffled

Kind = Literal["overlapping", "wrap", "documents"]
"""How blocks are cut: at any offset, consecutively, or by document."""


CHUNK = 1 << 24
"""Tokens searched for ends at a time."""


@dataclass(frozen=True, eq=False)
class Documents:
    """Blocks of one length from an array of documents separated by end tokens.

    A document longer than a block is truncated, and its block has no end.
    """

    tokens: np.ndarray
    length: int
    ends: Ends
    share: bool = False
    """Whether consecutive short documents share a block, each with its end."""
    seed: int = 0
    name: str = "corpus"
    """The name in errors."""

    def __post_init__(self) -> None:
        if not self.ends[1]:
            raise ValueError(
                "documents need a tokenizer with an end token, such as bpe-2048 or gpt2; this one "
                "has none"
            )
        if self.room < 2:
            raise ValueError(f"a block of {self.length} tokens has no room for text and its end")
        if not len(self.documents):
            raise ValueError(f"the {self.name} has no documents")
        empty = np.flatnonzero(self.documents[:, 0] == self.documents[:, 1])
        if len(empty):
            raise ValueError(
                f"the {self.name} has {len(empty)} empty documents of {len(self.documents)}, the "
                f"first of them number {empty[0] + 1}; prepare it again without them"
            )

    @property
    def room(self) -> int:
        """Tokens of a block after its first special token."""
        return self.length - len(self.ends[0])

    @property
    def cut(self) -> int:
        """Number of documents that are too long for a block."""
        return int((self.documents[:, 1] - self.documents[:, 0] >= self.room).sum())

    @cached_property
    def documents(self) -> np.ndarray:
        """Begin and end of every document in the array."""
        stops = np.concatenate([*_places(self.tokens, self.ends[1][0]), [len(self.tokens)]])
        begins = np.concatenate([[0], stops[:-1] + 1])
        whole = np.stack([begins, stops], axis=1).astype(np.int64)
        after_the_last_end = len(whole) and whole[-1, 0] >= whole[-1, 1]
        return whole[:-1] if after_the_last_end else whole

    @cached_property
    def spans(self) -> np.ndarray:
        """Begin and end of every block in the array."""
        if not self.share:
            return self.documents
        begins, stops = self.documents.T
        spans, first = [], 0
        while first < len(begins):
            fit = int(np.searchsorted(stops, begins[first] + self.room, side="left"))
            last = max(first, fit - 1)
            spans.append((begins[first], stops[last]))
            first = last + 1
        return np.array(spans, dtype=np.int64)

    def batch(self, step: int, places: range, global_batch: int) -> Tokens:
        """Return the blocks at these places of the global batch of a step."""
        numbers = (step * global_batch + place for place in places)
        return self._blocks([shuffled(self.seed, n, len(self.spans)) for n in numbers])

    def first(self, n: int) -> Tokens:
        """Return the first n blocks, or as many as there are."""
        return self._blocks(range(min(n, len(self.spans))))

    def spread(self, n: int) -> Tokens:
        """Return n blocks at equal distances, or all if there are fewer."""
        n = min(n, len(self.spans))
        return self._blocks([i * len(self.spans) // n for i in range(n)])

    def summary(self, empty: int = 0) -> str:
        """Describe the numbers of documents, blocks, and empty and truncated documents."""
        left_out = f"; {empty:,} empty ones were left out" if empty else ""
        cut = f"; {self.cut:,} are too long for a block and are cut" if self.cut else ""
        return f"{len(self.documents):,} documents in {len(self.spans):,} blocks{left_out}{cut}"

    def padding(self, blocks: Tokens) -> Bool[Tensor, "b l"]:
        """Return which tokens are padding."""
        return padding(blocks, self.ends)

    def _blocks(self, numbers: Sequence[int]) -> Tokens:
        rows = np.full((len(numbers), self.length), self.ends[1][0], dtype=np.int64)
        for row, number in zip(rows, numbers, strict=True):
            begin, stop = self.spans[number]
            held = self.tokens[begin : min(stop, begin + self.room)]
            before = len(self.ends[0])
            row[:before] = self.ends[0]
            row[before : before + len(held)] = held
        return torch.from_numpy(rows)


def _places(tokens: np.ndarray, end: int) -> Iterator[np.ndarray]:
    """Find the ends chunk by chunk; the array may be larger than memory."""
    for begin in range(0, len(tokens), CHUNK):
        yield np.flatnonzero(np.asarray(tokens[begin : begin + CHUNK]) == end) + begin


def blocks(
    corpus: Corpus,
    tokens: np.ndarray,
    length: int,
    kind: Kind,
    *,
    ends: Ends,
    share: bool = False,
    seed: int = 0,
    name: str = "corpus",
) -> Windows | Documents:
    """Return the tokens of a corpus as windows or documents."""
    if kind != "documents":
        return Windows(tokens, length, kind, seed, ends, name)
    if corpus.documents is None:
        raise ValueError(
            f"corpus {corpus.name!r} is one text and has no documents; use a .jsonl or .parquet "
            "file, a folder, or a data set"
        )
    return Documents(tokens, length, ends, share, seed, name)
