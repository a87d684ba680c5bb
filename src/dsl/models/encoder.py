"""A plain pre-norm Transformer encoder: the second backbone, without any modulation."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from dsl.models.dit import Hidden, LayerNorm, attend, mlp, zeroed
from dsl.models.dropout import ItemDropout
from dsl.models.rotary import Rotary


class EncoderBlock(nn.Module):
    """Attention and a feed-forward layer, each with a pre-norm and a residual connection."""

    def __init__(self, dim: int, heads: int, dropout: float, *, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1 = LayerNorm(dim)
        self.attn_qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.attn_out = nn.Linear(dim, dim, bias=False)
        self.norm2 = LayerNorm(dim)
        self.mlp = mlp(dim)
        # two layers, because each drops by its own mask
        self.drop_attended, self.drop_mixed = ItemDropout(dropout), ItemDropout(dropout)

    def forward(self, x: Float[Tensor, "b l h"], rotary: Rotary) -> Float[Tensor, "b l h"]:
        """Apply both layers."""
        attended = attend(
            self.norm1(x), self.attn_qkv, self.attn_out, rotary, self.heads, causal=self.causal
        )
        x = x + self.drop_attended(attended)
        x = x + self.drop_mixed(self.mlp(self.norm2(x)))
        return x


class Encoder(nn.Module):
    """The same interface as the DiT: features of mixtures, then a head on the chosen rows."""

    def __init__(
        self,
        out_dim: int,
        *,
        hidden_dim: int = 768,
        n_blocks: int = 12,
        n_heads: int = 12,
        dropout: float = 0.1,
        causal: bool = False,
    ) -> None:
        super().__init__()
        self.rotary_emb = Rotary(hidden_dim // n_heads)
        self.blocks = nn.ModuleList(
            EncoderBlock(hidden_dim, n_heads, dropout, causal=causal) for _ in range(n_blocks)
        )
        self.norm_final = LayerNorm(hidden_dim)
        self.linear = zeroed(nn.Linear(hidden_dim, out_dim))

    def features(self, x: Float[Tensor, "b l h"]) -> Float[Tensor, "b l h"]:
        """Run the blocks."""
        for block in self.blocks:
            x = block(x, self.rotary_emb)
        return x

    def head(self, x: Hidden) -> Float[Tensor, "*batch v"]:
        """Return the logits of the given rows of features."""
        logits: Tensor = self.linear(self.norm_final(x))
        return logits
