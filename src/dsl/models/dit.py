"""The DiT backbone of MDLM, tensor for tensor, with a constant time input.

Module names and shapes are those of the published checkpoints. The time embedding is kept and
always gets 0, so its modulation is a learned constant.
"""

from __future__ import annotations

import math

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn

from dsl.models.dropout import ItemDropout
from dsl.models.rotary import Rotary

Hidden = Float[Tensor, "*batch h"]


class LayerNorm(nn.Module):
    """Layer normalisation with a weight and no bias, computed in float32."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Hidden, modulation: tuple[Tensor, Tensor] | None = None) -> Hidden:
        """Normalise the last axis, then scale and shift: in one pass if all rows share them."""
        with torch.autocast(x.device.type, enabled=False):
            exact = torch.promote_types(torch.float32, x.dtype)
            wide, weight = x.to(exact), self.weight.to(exact)
            if modulation is None:
                return nn.functional.layer_norm(wide, weight.shape, weight).to(x.dtype)
            shift, scale = (part.to(exact) for part in modulation)
            gain = weight * (1 + scale)
            if shift.numel() == weight.numel():
                shift, gain = shift.flatten(), gain.flatten()
                return nn.functional.layer_norm(wide, weight.shape, gain, shift).to(x.dtype)
            normed = nn.functional.layer_norm(wide, weight.shape)
            return torch.addcmul(shift, normed, gain).to(x.dtype)


class SigmaMap(nn.Module):
    """Embed a noise level: sinusoids, then two layers."""

    def __init__(self, cond_dim: int, frequencies: int = 256) -> None:
        super().__init__()
        self.frequencies = frequencies
        self.mlp = nn.Sequential(
            nn.Linear(frequencies, cond_dim), nn.SiLU(), nn.Linear(cond_dim, cond_dim)
        )

    def forward(self, sigma: Float[Tensor, "b"]) -> Float[Tensor, "b c"]:
        """Return the embedding of σ; DSL uses σ = 0 only."""
        half = self.frequencies // 2
        frequency = torch.exp(
            -math.log(10_000) * torch.arange(half, device=sigma.device, dtype=torch.float32) / half
        )
        angle = torch.outer(sigma.float(), frequency)
        wave = torch.cat([angle.cos(), angle.sin()], dim=-1)
        embedded: Tensor = self.mlp(wave.to(sigma.dtype))
        return embedded


def attend(
    x: Float[Tensor, "b l h"],
    qkv: nn.Linear,
    out: nn.Linear,
    rotary: Rotary,
    heads: int,
    *,
    causal: bool = False,
) -> Float[Tensor, "b l h"]:
    """Compute rotary self-attention from the two projections that hold its weights."""
    parts = rearrange(qkv(x), "b l (three n d) -> three b n l d", three=3, n=heads)
    (q, k), v = rotary(parts[:2]), parts[2]
    slow = q.dtype is torch.bfloat16 and q.device.type == "cpu" and torch.is_grad_enabled()
    mix = attention if slow else nn.functional.scaled_dot_product_attention
    attended: Tensor = out(rearrange(mix(q, k, v, is_causal=causal), "b n l d -> b l (n d)"))
    return attended


def attention(
    q: Float[Tensor, "b n l d"],
    k: Float[Tensor, "b n l d"],
    v: Float[Tensor, "b n l d"],
    *,
    is_causal: bool = False,
    attn_mask: Bool[Tensor, "l l"] | None = None,
) -> Float[Tensor, "b n l d"]:
    """Attend by two products and a softmax: torch's fused backward is slow in bfloat16 on a CPU.

    Args:
        q: Queries.
        k: Keys.
        v: Values.
        is_causal: Whether a position attends only to itself and earlier ones.
        attn_mask: Which positions each one attends to; None is all.
    """
    score = (q @ k.mT).float() / math.sqrt(q.shape[-1])
    if is_causal:
        future = torch.ones(score.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        score = score.masked_fill(future, -math.inf)
    if attn_mask is not None:
        score = score.masked_fill(~attn_mask, -math.inf)
    return score.softmax(dim=-1).to(v.dtype) @ v


def mlp(dim: int) -> nn.Sequential:
    """Make the feed-forward half of a block, four times as wide inside."""
    return nn.Sequential(
        nn.Linear(dim, 4 * dim), nn.GELU(approximate="tanh"), nn.Linear(4 * dim, dim)
    )


class DiTBlock(nn.Module):
    """A pre-norm block whose norms are shifted and scaled, and whose branches are gated, by c."""

    def __init__(self, dim: int, heads: int, cond_dim: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = LayerNorm(dim)
        self.attn_qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.attn_out = nn.Linear(dim, dim, bias=False)
        self.norm2 = LayerNorm(dim)
        self.mlp = mlp(dim)
        self.adaLN_modulation = zeroed(nn.Linear(cond_dim, 6 * dim))
        # two layers, because each drops by its own mask
        self.drop_attended, self.drop_mixed = ItemDropout(dropout), ItemDropout(dropout)

    def forward(
        self, x: Float[Tensor, "b l h"], c: Float[Tensor, "b1 c"], rotary: Rotary
    ) -> Float[Tensor, "b l h"]:
        """Apply attention and the feed-forward layer, both under modulation."""
        signals = self.adaLN_modulation(c).unsqueeze(1).chunk(6, dim=-1)
        shift_msa, scale_msa, gate_msa, shift_mlp, scale_mlp, gate_mlp = signals
        inner = self.norm1(x, (shift_msa, scale_msa))
        attended = attend(inner, self.attn_qkv, self.attn_out, rotary, self.heads)
        x = torch.addcmul(x, gate_msa, self.drop_attended(attended))
        inner = self.norm2(x, (shift_mlp, scale_mlp))
        return torch.addcmul(x, gate_mlp, self.drop_mixed(self.mlp(inner)))


class OutputLayer(nn.Module):
    """The final norm under modulation, and the head, applied to the requested rows only."""

    def __init__(self, dim: int, out_dim: int, cond_dim: int) -> None:
        super().__init__()
        self.norm_final = LayerNorm(dim)
        self.linear = zeroed(nn.Linear(dim, out_dim))
        self.adaLN_modulation = zeroed(nn.Linear(cond_dim, 2 * dim))

    def forward(self, x: Hidden, c: Float[Tensor, "*cond c"]) -> Float[Tensor, "*batch v"]:
        """Return the logits of the given rows; c must broadcast against them."""
        shift, scale = self.adaLN_modulation(c).chunk(2, dim=-1)
        logits: Tensor = self.linear(self.norm_final(x, (shift, scale)))
        return logits


class DiT(nn.Module):
    """The backbone between the converter's mixtures and the clean-token logits.

    Zero-initialised modulation and head: untrained, every block is the identity and every
    posterior uniform.
    """

    def __init__(
        self,
        out_dim: int,
        *,
        hidden_dim: int = 768,
        cond_dim: int = 128,
        n_blocks: int = 12,
        n_heads: int = 12,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.sigma_map = SigmaMap(cond_dim)
        self.rotary_emb = Rotary(hidden_dim // n_heads)
        self.blocks = nn.ModuleList(
            DiTBlock(hidden_dim, n_heads, cond_dim, dropout) for _ in range(n_blocks)
        )
        self.output_layer = OutputLayer(hidden_dim, out_dim, cond_dim)

    def condition(self, sigma: Float[Tensor, "b1"]) -> Float[Tensor, "b1 c"]:
        """Return the modulation signal of a noise level."""
        return nn.functional.silu(self.sigma_map(sigma))

    def features(
        self, x: Float[Tensor, "b l h"], clock: Float[Tensor, "b"] | None = None
    ) -> Float[Tensor, "b l h"]:
        """Run the blocks with time input 0, or with one noise level per sequence."""
        c = self.condition(x.new_zeros(1) if clock is None else clock)
        for block in self.blocks:
            x = block(x, c, self.rotary_emb)
        return x

    def head(self, x: Hidden, clock: Float[Tensor, "b"] | None = None) -> Float[Tensor, "*batch v"]:
        """Return the logits of the given rows; with a time input, x must hold whole sequences."""
        c = self.condition(x.new_zeros(1) if clock is None else clock)
        logits: Tensor = self.output_layer(x, c[0] if clock is None else c.unsqueeze(1))
        return logits


def zeroed(linear: nn.Linear) -> nn.Linear:
    """Set weight and bias to zero."""
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear
