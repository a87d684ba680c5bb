"""MDLM's published network: the DiT over token ids, [MASK] being the last of them."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from dsl.models.dit import DiT


class TokenEmbedding(nn.Module):
    """A raw table of token rows."""

    def __init__(self, vocab_size: int, dim: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(dim)
        self.embedding = nn.Parameter(torch.empty(vocab_size, dim).uniform_(-bound, bound))

    def forward(self, tokens: Int[Tensor, "b l"]) -> Float[Tensor, "b l h"]:
        """Look tokens up."""
        return self.embedding[tokens]


class MDLM(DiT):
    """The network whose checkpoints DSL is fine-tuned from; same tensors, same names."""

    def __init__(self, vocab_size: int, *, hidden_dim: int = 768, **blocks: Any) -> None:
        super().__init__(vocab_size, hidden_dim=hidden_dim, **blocks)
        self.vocab_embed = TokenEmbedding(vocab_size, hidden_dim)

    def forward(self, tokens: Int[Tensor, "b l"]) -> Float[Tensor, "b l v"]:
        """Return raw logits over all ids, [MASK] included."""
        return self.head(self.features(self.vocab_embed(tokens)))
