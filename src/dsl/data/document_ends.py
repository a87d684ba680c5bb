"""The end of a document in a block of tokens, and the padding after it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool
from torch import Tensor

from dsl.core.types import Tokens

Ends = tuple[Sequence[int], Sequence[int]]
"""The special tokens that begin and end a block."""


def document(ids: Sequence[int], ends: Ends, *, known: int = 0) -> list[int]:
    """Return the tokens of the first document in a block, without special tokens.

    Args:
        ids: The block.
        ends: The special tokens that begin and end blocks.
        known: Number of first tokens in which ends are ignored.
    """
    before, end = len(ends[0]), list(ends[1])
    held = list(ids)
    if before and held[:before] == list(ends[0]):
        held, known = held[before:], max(0, known - before)
    after = held[known:]
    return held[: known + after.index(end[0])] if end and end[0] in after else held


def padding(tokens: Tokens, ends: Ends) -> Bool[Tensor, "b l"]:
    """Return which tokens are padding: ends that follow an end."""
    if not ends[1]:
        return torch.zeros_like(tokens, dtype=torch.bool)
    end = tokens == ends[1][0]
    found = torch.zeros_like(end)
    first = len(ends[0])  # begin and end may be the same token
    found[:, first + 1 :] = end[:, first + 1 :] & end[:, first:-1]
    return found
