"""The llama backbone: RMSNorm, SwiGLU, rotary positions, grouped queries; in either direction.

Published autoregressive models of this shape become denoisers: the causal mask is removed, and
the state before a token still predicts it (`LlamaOptions.shift`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn

from dsl.models.dit import Hidden, attention
from dsl.models.dropout import ItemDropout
from dsl.models.rotary import Rotary


@dataclass(frozen=True)
class LlamaOptions:
    """Options of a llama network, in addition to width, blocks and heads."""

    mlp_dim: int
    """The inner width of the feed-forward layers."""
    kv_heads: int | None = None
    """Heads of keys and values, shared by groups of queries; None: one per query head."""
    rope_base: float = 10_000.0
    """The base of the rotary angles."""
    eps: float = 1e-5
    """Added in the norm to avoid division by zero."""
    tied: bool = True
    """Whether the head is the table of embeddings."""
    shift: bool = True
    """Whether the state before a token predicts it, as an autoregressive model's does."""

    def __post_init__(self) -> None:
        if not 1 <= self.mlp_dim <= 10**6:
            raise ValueError(f"llama.mlp_dim must lie in 1 … 1,000,000, got {self.mlp_dim}")
        if self.kv_heads is not None and self.kv_heads < 1:
            raise ValueError(f"llama.kv_heads must be at least 1, got {self.kv_heads}")
        if self.rope_base <= 1 or not 0 < self.eps < 1:
            raise ValueError(
                "llama.rope_base must be above 1 and llama.eps in (0, 1), "
                f"got {self.rope_base:g} and {self.eps:g}"
            )


class Memory:
    """A preallocated key-value cache of a causal network."""

    def __init__(self, room: int) -> None:
        self.read, self.room = 0, room
        self.pairs: list[tuple[Tensor, Tensor]] = []

    def extend(
        self, block: int, k: Float[Tensor, "b m l d"], v: Float[Tensor, "b m l d"]
    ) -> tuple[Float[Tensor, "b m r d"], Float[Tensor, "b m r d"]]:
        """Add keys and values of a block, and return all of them."""
        end = self.read + k.shape[2]
        if end > self.room:
            raise ValueError(f"there is room for {self.room} tokens, got {end}")
        if block == len(self.pairs):
            sizes = (*k.shape[:2], self.room, k.shape[3])
            self.pairs.append((k.new_empty(sizes), v.new_empty(sizes)))
        keys, values = self.pairs[block]
        keys[:, :, self.read : end], values[:, :, self.read : end] = k, v
        return keys[:, :, :end], values[:, :, :end]

    def keep(self, rows: Bool[Tensor, "b"]) -> None:
        """Drop the other sequences of the batch."""
        self.pairs = [(k[rows], v[rows]) for k, v in self.pairs]


class Norm(nn.RMSNorm):
    """RMSNorm whose weight is cast to the input's dtype, which allows the fused kernel."""

    def forward(self, x: Float[Tensor, "*rows h"]) -> Float[Tensor, "*rows h"]:
        """Divide by the root mean square."""
        assert self.weight is not None
        weight = self.weight.to(x.dtype)
        return nn.functional.rms_norm(x, self.normalized_shape, weight, self.eps)


class LlamaBlock(nn.Module):
    """Attention and a gated feed-forward layer, each with a pre-norm and a residual."""

    def __init__(self, dim: int, heads: int, dropout: float, options: LlamaOptions) -> None:
        super().__init__()
        groups = options.kv_heads or heads
        self.widths = (dim, dim * groups // heads, dim * groups // heads)
        self.head_dim = dim // heads
        self.norm1 = Norm(dim, eps=options.eps)
        self.attn_qkv = nn.Linear(dim, sum(self.widths), bias=False)
        self.attn_out = nn.Linear(dim, dim, bias=False)
        self.norm2 = Norm(dim, eps=options.eps)
        self.mlp_in = nn.Linear(dim, 2 * options.mlp_dim, bias=False)  # the gate, then the values
        self.mlp_out = nn.Linear(options.mlp_dim, dim, bias=False)
        # two layers, because each drops by its own mask
        self.drop_attended, self.drop_mixed = ItemDropout(dropout), ItemDropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "b l h"],
        rotary: Rotary,
        seen: Bool[Tensor, "l r"] | None,
        memory: Memory | None = None,
        number: int = 0,
    ) -> Float[Tensor, "b l h"]:
        """Apply both layers; `seen` chooses the positions that each one attends to; None is all."""
        x = x + self.drop_attended(self._attend(self.norm1(x), rotary, seen, memory, number))
        gate, value = self.mlp_in(self.norm2(x)).chunk(2, dim=-1)
        mixed: Tensor = x + self.drop_mixed(self.mlp_out(nn.functional.silu(gate) * value))
        return mixed

    def _attend(
        self,
        x: Float[Tensor, "b l h"],
        rotary: Rotary,
        seen: Bool[Tensor, "l r"] | None,
        memory: Memory | None,
        number: int,
    ) -> Float[Tensor, "b l h"]:
        parts = self.attn_qkv(x).split(self.widths, dim=-1)
        q, k, v = (rearrange(part, "b l (n d) -> b n l d", d=self.head_dim) for part in parts)
        begin = 0 if memory is None else memory.read
        q, k = rotary(q, begin), rotary(k, begin)
        if memory is not None:
            k, v = memory.extend(number, k, v)
        share = q.shape[1] // k.shape[1]
        if share > 1:
            k, v = k.repeat_interleave(share, dim=1), v.repeat_interleave(share, dim=1)
        slow = q.dtype is torch.bfloat16 and q.device.type == "cpu" and torch.is_grad_enabled()
        mix = attention if slow else nn.functional.scaled_dot_product_attention
        attended: Tensor = self.attn_out(
            rearrange(mix(q, k, v, attn_mask=seen), "b n l d -> b l (n d)")
        )
        return attended


class Llama(nn.Module):
    """The same interface as the DiT: features of mixtures, then a head on the chosen rows."""

    ahead: int | None = None
    """How far ahead each position attends; None is unlimited, 0 is causal."""

    def __init__(
        self,
        out_dim: int,
        options: LlamaOptions,
        *,
        hidden_dim: int = 768,
        n_blocks: int = 12,
        n_heads: int = 12,
        dropout: float = 0.1,
        causal: bool = False,
    ) -> None:
        super().__init__()
        self.options = options
        self.ahead = 0 if causal else None
        # the embedding before the first token, if each state predicts the next token
        self.begin = nn.Parameter(torch.zeros(hidden_dim)) if options.shift and not causal else None
        self.rotary_emb = Rotary(hidden_dim // n_heads, options.rope_base, kept=False)
        self.blocks = nn.ModuleList(
            LlamaBlock(hidden_dim, n_heads, dropout, options) for _ in range(n_blocks)
        )
        self.norm_final = Norm(hidden_dim, eps=options.eps)
        self.linear = None if options.tied else nn.Linear(hidden_dim, out_dim, bias=False)

    def features(
        self, x: Float[Tensor, "b l h"], memory: Memory | None = None
    ) -> Float[Tensor, "b l h"]:
        """Run the blocks; row i of the output predicts token i.

        Args:
            x: Converted states, or embedded tokens.
            memory: The cache of a causal network; `x` continues from it.
        """
        if self.begin is not None:
            x = torch.cat([self.begin.to(x.dtype).expand(len(x), 1, -1), x], dim=1)
        seen = self._seen(x.shape[1], 0 if memory is None else memory.read, x.device)
        for number, block in enumerate(self.blocks):
            x = block(x, self.rotary_emb, seen, memory, number)
        if memory is not None:
            memory.read += x.shape[1]
        return x if self.begin is None else x[:, :-1]

    def head(self, x: Hidden, table: Float[Tensor, "v h"] | None) -> Float[Tensor, "*batch v"]:
        """Return the logits of the given rows of features; a tied head reads the table."""
        weight = table if self.linear is None else self.linear.weight
        assert weight is not None  # a tied head has a table: the config checks it
        return nn.functional.linear(self.norm_final(x), weight.to(x.dtype))

    def _seen(self, length: int, before: int, device: torch.device) -> Bool[Tensor, "l r"] | None:
        if self.ahead is None or (length == 1 and self.ahead == 0):
            return None
        here = torch.arange(before, before + length, device=device).unsqueeze(1)
        return torch.arange(before + length, device=device) <= here + self.ahead


def require_annealed(backbone: nn.Module, share: float) -> None:
    """Raise an error if `share` is invalid or the blocks are not llama's."""
    if not 0 <= share <= 1:
        raise ValueError(f"anneal must be a share of the run in [0, 1], got {share:g}")
    if share and not isinstance(backbone, Llama):
        raise ValueError("anneal needs llama blocks: no others start causal")


def look_ahead(backbone: nn.Module, progress: float, share: float, length: int) -> None:
    """Widen the attention window linearly; full after `share` of the run.

    Args:
        backbone: The backbone; only llama blocks have a window.
        progress: The share of the run that is done.
        share: The share of the run over which the window grows; 0 is unlimited.
        length: Tokens in a sequence.
    """
    if isinstance(backbone, Llama):
        done = progress >= share
        backbone.ahead = None if done else int(progress / share * length)
