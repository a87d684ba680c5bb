"""How sharp a posterior is: largest probability, nucleus size, uncertainty, entropy (D.4)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.denoiser import Denoiser, Endpoints
from dsl.types import Noisy

CHUNK_ROWS = 256
"""Rows whose probabilities exist at any one time."""


@dataclass(frozen=True)
class Sharpness:
    """Means over the positions of each sequence."""

    max_prob: Float[Tensor, "b"]
    nucleus: Float[Tensor, "b"]
    """k_t, the number of tokens that make up top_p, the one that crosses it included."""
    entropy: Float[Tensor, "b"]
    """H_t, in nats."""

    @property
    def uncertainty(self) -> Float[Tensor, "b"]:
        """u_t = 1 - the mean largest probability."""
        return 1 - self.max_prob


@torch.no_grad()
def sharpness(denoiser: Denoiser, z: Noisy | Endpoints, *, top_p: float = 0.9) -> Sharpness:
    """Measure the posterior at every position of a state, a chunk of rows at a time.

    It asks for every row and so costs a whole head; samplers do not, which is why this is a
    measurement and not a by-product of sampling.
    """
    logits = denoiser(z)
    b, length, v = logits.shape
    parts = [_rows(rows, top_p) for rows in logits.reshape(-1, v).split(CHUNK_ROWS)]
    columns = torch.cat(parts, dim=1).reshape(3, b, length).mean(dim=-1)
    return Sharpness(*columns.unbind())


def _rows(logits: Float[Tensor, "n v"], top_p: float) -> Float[Tensor, "three n"]:
    p = logits.double().softmax(dim=-1)
    ordered = p.sort(dim=-1, descending=True).values
    nucleus = (ordered.cumsum(dim=-1) - ordered < top_p).sum(dim=-1)
    entropy = torch.special.entr(p).sum(dim=-1)
    return torch.stack([ordered[:, 0], nucleus.double(), entropy])
