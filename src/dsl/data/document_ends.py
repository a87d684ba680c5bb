"""Where a document ends in a block of tokens, and what is padding after it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool
from torch import Tensor

from dsl.core.types import Tokens

Ends = tuple[Sequence[int], Sequence[int]]
"""The specials that a block begins and ends with."""


def document(ids: Sequence[int], ends: Ends, *, known: int = 0) -> list[int]:
    """Return the tokens of the first document in a block, without specials at its ends.

    Args:
        ids: The block.
        ends: The specials that blocks begin and end with.
        known: Tokens at the beginning of the block that belong to the document for certain.
    """
    before, end = len(ends[0]), list(ends[1])
    held = list(ids)
    if before and held[:before] == list(ends[0]):
        held, known = held[before:], max(0, known - before)
    after = held[known:]
    return held[: known + after.index(end[0])] if end and end[0] in after else held


def padding(tokens: Tokens, ends: Ends) -> Bool[Tensor, "b l"]:
    """Say which tokens are padding: an end that follows an end, and says nothing about the text."""
    if not ends[1]:
        return torch.zeros_like(tokens, dtype=torch.bool)
    end = tokens == ends[1][0]
    found = torch.zeros_like(end)
    first = len(ends[0])  # an end after the beginning is one, even if both are the same token
    found[:, first + 1 :] = end[:, first + 1 :] & end[:, first:-1]
    return found
