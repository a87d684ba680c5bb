"""Arrangements of tokens on the unit sphere: the geometry that removes the SNR (section 2.2)."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.core.streams import normal
from dsl.core.types import Codebook


def unit(table: Float[Tensor, "v d"]) -> Codebook:
    """Scale every row to norm one."""
    return torch.nn.functional.normalize(table, dim=-1)


def circle(size: int, *, dtype: torch.dtype | None = None) -> Codebook:
    """Place tokens on the unit circle at equal angles, as the paper's cyclic toy does (D.1)."""
    angle = 2 * math.pi * torch.arange(size, dtype=dtype or torch.get_default_dtype()) / size
    return torch.stack([angle.cos(), angle.sin()], dim=-1)


def simplex(size: int, dim: int | None = None, *, dtype: torch.dtype | None = None) -> Codebook:
    """Place tokens at the corners of a regular simplex: every pair at the same angle.

    It needs d ≥ v - 1 and is the best conditioned codebook there is: every likelihood vector
    over the vocabulary is then ⟨z, x_v⟩ + const for some z.
    """
    least = max(size - 1, 1)
    dim = least if dim is None else dim
    if dim < least:
        raise ValueError(f"a simplex of {size} tokens needs at least {least} dimensions, got {dim}")
    # The centred corners of the standard simplex span v - 1 dimensions; their Gram matrix's
    # eigenvectors are coordinates there. Helmert's basis writes them down without rounding.
    table = torch.zeros(size, dim, dtype=torch.float64)
    for k in range(1, size):
        table[:k, k - 1] = 1 / math.sqrt(k * (k + 1))
        table[k, k - 1] = -k / math.sqrt(k * (k + 1))
    if size == 1:
        table[0, 0] = 1.0
    return unit(table).to(dtype or torch.get_default_dtype())


def random(
    size: int,
    dim: int,
    *,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
) -> Codebook:
    """Draw tokens uniformly on the sphere."""
    return unit(normal((size, dim), generator=generator, dtype=dtype))


def projected(
    table: Float[Tensor, "v h"], dim: int, *, generator: torch.Generator | None = None
) -> Codebook:
    """Project a given embedding table to d dimensions at random and normalise.

    Gaussian projection keeps angles up to O(1/√d), so related tokens stay neighbours.
    """
    centred = table - table.mean(dim=0)
    plane = normal((table.shape[1], dim), generator=generator, dtype=table.dtype)
    return unit(centred @ plane.to(table.device))


def apart(table: Codebook, most: float, *, generator: torch.Generator | None = None) -> Codebook:
    """Replace rows that nearly coincide with an earlier one by random unit vectors.

    Rows that a model never trained are almost equal, so no state could distinguish these keys.

    Args:
        table: Unit rows.
        most: The largest cosine at which two rows count as different.
        generator: The source of the random vectors.
    """
    made = table.clone()
    for _ in range(100):
        near = (made @ made.T).tril(-1).amax(dim=1) > most
        if not near.any():
            return made
        made[near] = random(int(near.sum()), table.shape[1], generator=generator, dtype=table.dtype)
    raise ValueError(
        f"{len(table)} tokens in {table.shape[1]} dimensions cannot all have cosines below {most:g}"
    )
