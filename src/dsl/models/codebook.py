"""The trainable codebook: unit-norm by construction, not by penalty."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dsl.core import sphere
from dsl.core.types import Codebook


class UnitCodebook(nn.Module):
    """A table whose rows are normalised each time they are read, so no step can leave the sphere.

    This is weight normalisation with its gain held at one: only directions are learned.
    """

    def __init__(self, table: Tensor, *, trainable: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(sphere.unit(table), requires_grad=trainable)

    def forward(self) -> Codebook:
        """Return the embeddings x_v."""
        return sphere.unit(self.weight)


def initial_table(kind: str, size: int, dim: int, *, source: Tensor | None = None) -> Codebook:
    """Make the initial codebook: random, a regular simplex, or projected from a given table."""
    if kind == "simplex":
        return sphere.simplex(size, dim)
    if kind == "projected" and source is not None:
        if source.shape[0] != size:
            raise ValueError(f"the table must have {size} rows, got {source.shape[0]}")
        return sphere.projected(source.to(torch.get_default_dtype()), dim)
    # A model that is about to be filled from a checkpoint has no table to project from yet.
    return sphere.random(size, dim)
