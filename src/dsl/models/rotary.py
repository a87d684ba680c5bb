"""Rotary position embedding, half-split, as in MDLM."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Rotary(nn.Module):
    """Rotate queries and keys by angles that grow with the position."""

    inv_freq: Tensor

    def __init__(self, dim: int, base: float = 10_000.0) -> None:
        super().__init__()
        exponent = torch.arange(0, dim, 2).float() / dim
        self.register_buffer("inv_freq", base**-exponent)

    def forward(self, x: Float[Tensor, "b heads l dim"]) -> Float[Tensor, "b heads l dim"]:
        """Rotate each pair (x_i, x_{i + dim/2}) by position times its frequency."""
        position = torch.arange(x.shape[2], device=x.device, dtype=torch.float32)
        # float32 whatever the model's precision: bfloat16 cannot tell position 1000 from 1001
        angle = torch.outer(position, self.inv_freq.float())
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        left, right = x.chunk(2, dim=-1)
        return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)
