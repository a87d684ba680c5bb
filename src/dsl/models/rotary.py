"""Rotary position embedding, half-split, as in MDLM."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Rotary(nn.Module):
    """Rotate queries and keys by angles that grow with the position."""

    inv_freq: Tensor

    def __init__(self, dim: int, base: float = 10_000.0, *, kept: bool = True) -> None:
        """Make the embedding; with `kept`, frequencies are saved as in MDLM's checkpoints."""
        super().__init__()
        self.dim, self.base = dim, base
        self.register_buffer("inv_freq", self.frequencies(), persistent=kept)

    def frequencies(self, device: torch.device | None = None) -> Float[Tensor, "half"]:
        """Return the angle by which each pair turns from one position to the next."""
        exponent = torch.arange(0, self.dim, 2, dtype=torch.float32, device=device) / self.dim
        return self.base**-exponent

    def forward(
        self, x: Float[Tensor, "*batch l dim"], begin: int = 0
    ) -> Float[Tensor, "*batch l dim"]:
        """Rotate each pair (x_i, x_{i + dim/2}) by position times its frequency.

        Args:
            x: Queries or keys.
            begin: The position of the first of them.
        """
        end = begin + x.shape[-2]
        position = torch.arange(begin, end, device=x.device, dtype=torch.float32)
        # float32 whatever the model's precision, and not from the buffer, which is cast with the
        # model: bfloat16 cannot tell position 1000 from 1001
        angle = torch.outer(position, self.frequencies(x.device))
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        left, right = x.chunk(2, dim=-1)
        return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)
