from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from dsl.models.config import ModelConfig
from dsl.models.dit import DiT, LayerNorm, attend, attention
from dsl.models.encoder import Encoder
from dsl.models.mdlm import MDLM
from dsl.models.rotary import Rotary
from tests.conftest import assert_near


def shape_only(config: ModelConfig, vocab_size: int) -> MDLM:
    with torch.device("meta"):
        return MDLM(
            vocab_size,
            hidden_dim=config.hidden_dim,
            cond_dim=config.cond_dim,
            n_blocks=config.n_blocks,
            n_heads=config.n_heads,
        )


@pytest.mark.parametrize(
    "config, vocab_size, count",
    [
        (ModelConfig(50_257), 50_258, 169.627218),
        (ModelConfig(34), 35, 92.43),
        (ModelConfig(50_257, hidden_dim=512, n_blocks=8, n_heads=8), 50_258, 80.06),
        (ModelConfig(50_257, hidden_dim=1024, n_blocks=24, n_heads=16), 50_258, 424.48),
    ],
)
def test_parameter_counts_are_those_of_mdlm(
    config: ModelConfig, vocab_size: int, count: float
) -> None:
    """In millions; the published count of the small network is matched to the last parameter."""
    millions = sum(p.numel() for p in shape_only(config, vocab_size).parameters()) / 1e6
    assert millions == pytest.approx(count, abs=0.5e-6 if count == 169.627218 else 0.005)


def test_the_state_dict_is_that_of_the_published_checkpoints() -> None:
    h, c, v = 768, 128, 50_258
    wanted = {
        "vocab_embed.embedding": (v, h),
        "sigma_map.mlp.0.weight": (c, 256),
        "sigma_map.mlp.0.bias": (c,),
        "sigma_map.mlp.2.weight": (c, c),
        "sigma_map.mlp.2.bias": (c,),
        "rotary_emb.inv_freq": (32,),
        "output_layer.norm_final.weight": (h,),
        "output_layer.linear.weight": (v, h),
        "output_layer.linear.bias": (v,),
        "output_layer.adaLN_modulation.weight": (2 * h, c),
        "output_layer.adaLN_modulation.bias": (2 * h,),
    }
    for i in range(12):
        wanted |= {
            f"blocks.{i}.norm1.weight": (h,),
            f"blocks.{i}.attn_qkv.weight": (3 * h, h),
            f"blocks.{i}.attn_out.weight": (h, h),
            f"blocks.{i}.norm2.weight": (h,),
            f"blocks.{i}.mlp.0.weight": (4 * h, h),
            f"blocks.{i}.mlp.0.bias": (4 * h,),
            f"blocks.{i}.mlp.2.weight": (h, 4 * h),
            f"blocks.{i}.mlp.2.bias": (h,),
            f"blocks.{i}.adaLN_modulation.weight": (6 * h, c),
            f"blocks.{i}.adaLN_modulation.bias": (6 * h,),
        }
    state = shape_only(ModelConfig(50_257), v).state_dict()
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == wanted
    assert len(state) == 131


def dit(**changes: int) -> DiT:
    net = DiT(7, hidden_dim=16, cond_dim=4, n_blocks=2, n_heads=2, dropout=0.0)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return net


def test_untrained_blocks_are_the_identity_and_posteriors_uniform() -> None:
    net = DiT(7, hidden_dim=16, cond_dim=4, n_blocks=2, n_heads=2)
    x = torch.randn(2, 5, 16)
    torch.testing.assert_close(net.features(x), x)
    assert (net.head(x) == 0).all()


def test_the_clock_stands_at_zero() -> None:
    """At σ = 0 the sinusoids are 128 ones and 128 zeros, and c is an MLP of that constant."""
    net = dit()
    wave = torch.cat([torch.ones(128), torch.zeros(128)])
    first, _, second = net.sigma_map.mlp
    wanted = torch.nn.functional.silu(second(torch.nn.functional.silu(first(wave))))
    torch.testing.assert_close(net.condition(torch.zeros(1))[0], wanted)


def by_hand(net: DiT, x: Tensor) -> Tensor:
    """The MDLM block written out from its description, position by position."""
    c = net.condition(torch.zeros(1))[0]
    for block in net.blocks:
        parts = (block.adaLN_modulation.weight @ c + block.adaLN_modulation.bias).split(16)
        shift_msa, scale_msa, gate_msa, shift_mlp, scale_mlp, gate_mlp = parts
        inner = norm(x) * block.norm1.weight * (1 + scale_msa) + shift_msa
        q, k, v = (inner @ block.attn_qkv.weight.T).split(16)[0].split(16, dim=-1)
        heads = []
        for n in range(2):
            a, b, w = (t[:, 8 * n : 8 * n + 8] for t in (q, k, v))
            heads.append((spin(a) @ spin(b).T / math.sqrt(8)).softmax(-1) @ w)
        x = x + gate_msa * (torch.cat(heads, dim=-1) @ block.attn_out.weight.T)
        inner = norm(x) * block.norm2.weight * (1 + scale_mlp) + shift_mlp
        up, _, down = block.mlp
        wide = torch.nn.functional.gelu(inner @ up.weight.T + up.bias, approximate="tanh")
        x = x + gate_mlp * (wide @ down.weight.T + down.bias)
    last = net.output_layer
    shift, scale = (last.adaLN_modulation.weight @ c + last.adaLN_modulation.bias).split(16)
    inner = norm(x) * last.norm_final.weight * (1 + scale) + shift
    return inner @ last.linear.weight.T + last.linear.bias


def norm(x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def spin(x: Tensor) -> Tensor:
    """Rotate (x_i, x_{i+4}) by position · 10000^(-i/4): the half-split convention."""
    out = x.clone()
    for position in range(x.shape[0]):
        for i in range(4):
            angle = position * 10_000 ** (-i / 4)
            a, b = x[position, i], x[position, i + 4]
            out[position, i] = a * math.cos(angle) - b * math.sin(angle)
            out[position, i + 4] = b * math.cos(angle) + a * math.sin(angle)
    return out


def test_the_network_is_the_one_described() -> None:
    net, x = dit(), torch.randn(1, 5, 16)
    assert_near(net.head(net.features(x))[0], by_hand(net, x[0]))


def test_rotary_attention_depends_on_distance_alone() -> None:
    rotary = Rotary(8)
    q, k = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 1, 8)
    turned_q, turned_k = rotary(q.expand(1, 1, 9, 8)), rotary(k.expand(1, 1, 9, 8))
    scores = (turned_q @ turned_k.mT)[0, 0]
    torch.testing.assert_close(scores[2, 0], scores[8, 6])
    assert abs(scores[2, 0] - scores[2, 1]) > 1e-4


def test_a_causal_encoder_does_not_look_right() -> None:
    net = Encoder(7, hidden_dim=16, n_blocks=2, n_heads=2, dropout=0.0, causal=True)
    x = torch.randn(1, 6, 16)
    changed = x.clone()
    changed[:, 4:] += 1
    assert_near(net.features(x)[:, :4], net.features(changed)[:, :4])
    both = Encoder(7, hidden_dim=16, n_blocks=2, n_heads=2, dropout=0.0)
    assert (both.features(x)[:, :4] != both.features(changed)[:, :4]).any()


def test_attention_is_invariant_to_the_order_without_rotation() -> None:
    class Still(Rotary):
        def forward(self, x: Tensor) -> Tensor:
            return x

    qkv, out = torch.nn.Linear(16, 48, bias=False), torch.nn.Linear(16, 16, bias=False)
    x, order = torch.randn(1, 5, 16), torch.randperm(5)
    here = attend(x, qkv, out, Still(8), 2)
    assert_near(here[:, order], attend(x[:, order], qkv, out, Still(8), 2))


@pytest.mark.parametrize("causal", [False, True])
def test_attention_by_products_is_the_fused_one(causal: bool) -> None:
    q, k, v = torch.randn(3, 2, 3, 5, 8, dtype=torch.float64)
    fused = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    torch.testing.assert_close(attention(q, k, v, is_causal=causal), fused, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("rows", [1, 3])
def test_norms_scale_and_shift_alike_for_one_modulation_or_many(rows: int) -> None:
    norm, generator = LayerNorm(8), torch.Generator().manual_seed(0)
    with torch.no_grad():
        norm.weight.copy_(torch.rand(8, generator=generator))
    x = torch.randn(3, 5, 8, generator=generator)
    shift, scale = torch.randn(2, rows, 1, 8, generator=generator)
    assert_near(norm(x, (shift, scale)), norm(x) * (1 + scale) + shift)
