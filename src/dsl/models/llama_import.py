"""Llama-shaped models in: a llama2.c file, or a directory that transformers writes."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from dsl.files import parse_json
from dsl.models.ar import ArModel, ArShape
from dsl.models.config import NetworkShape
from dsl.models.llama import LlamaOptions

HEADER = 7
"""The numbers that a llama2.c file begins with."""


@dataclass(frozen=True, eq=False)
class Source:
    """A llama as it was read: its shape, and its tensors by our names."""

    shape: NetworkShape
    tensors: Mapping[str, Tensor]
    """Of the blocks and the last norm, and `linear.weight` if the head is not tied."""
    embedding: Float[Tensor, "v h"]
    begin: int
    """The token that begins every text, and so ends the one before."""

    def causal(
        self,
        kept: Sequence[int] | None = None,
        *,
        temperature: float = 1.0,
        length: int = 0,
        ends: bool = False,
    ) -> ArModel:
        """Make the autoregressive network, restricted to some tokens and renormalised.

        Args:
            kept: The tokens of its vocabulary, in their new order; all if not given.
            temperature: Divides the logits, which are linear in the gain of the last norm.
            length: The longest sequence; the source's own if not given.
            ends: Let nothing follow the end of a text, which is the token that begins every one.
        """
        rows = torch.arange(len(self.embedding)) if kept is None else torch.tensor(kept)
        longest = length or self.shape.model_length
        fields = {**self.shape.to_dict(), "vocab_size": len(rows), "model_length": longest}
        if ends:
            fields["end"] = int((rows == self.begin).nonzero())
        model = ArModel(ArShape.from_dict(fields))
        state = {f"backbone.{name}": tensor for name, tensor in self.tensors.items()}
        state["backbone.norm_final.weight"] = self.tensors["norm_final.weight"] / temperature
        if "linear.weight" in self.tensors:
            state["backbone.linear.weight"] = self.tensors["linear.weight"][rows]
        begin = self.embedding[self.begin].unsqueeze(0)
        state["embedding"] = torch.cat([self.embedding[rows], begin])
        model.load_state_dict(state)
        return model.eval()


def read_llama2c(data: bytes, name: str) -> Source:
    """Read a llama2.c file of the first version: seven numbers, then the weights as float32."""
    if len(data) < 4 * HEADER:
        raise ValueError(f"{name} is no llama2.c file: it has {len(data)} bytes")
    width, inner, blocks, heads, groups, signed, length = struct.unpack_from("<7i", data)
    sizes = (width, inner, blocks, heads, groups, abs(signed), length)
    if min(sizes) < 1 or max(sizes) > 10**6 or blocks > 1000 or width % heads or heads % groups:
        raise ValueError(f"{name} is no llama2.c file: it begins with the sizes {sizes}")
    v, d = abs(signed), width // heads
    layout: list[tuple[str, tuple[int, ...]]] = [
        ("embedding", (v, width)),
        ("norm1", (blocks, width)),
        ("q", (blocks, width, width)),
        ("k", (blocks, groups * d, width)),
        ("v", (blocks, groups * d, width)),
        ("attn_out", (blocks, width, width)),
        ("norm2", (blocks, width)),
        ("gate", (blocks, inner, width)),
        ("mlp_out", (blocks, width, inner)),
        ("values", (blocks, inner, width)),
        ("norm_final", (width,)),
        ("cosines", (length, d // 2)),
        ("sines", (length, d // 2)),
    ]
    if signed < 0:
        layout.append(("linear", (v, width)))
    needed = 4 * (HEADER + sum(int(np.prod(size)) for _, size in layout))
    if len(data) != needed:
        raise ValueError(
            f"{name} is damaged: a llama2.c file of the sizes {sizes} has {needed:,} bytes, "
            f"got {len(data):,}"
        )
    parts, begin = {}, 4 * HEADER
    for part, size in layout:
        count = int(np.prod(size))
        flat = np.frombuffer(data, "<f4", count, begin).astype(np.float32)
        parts[part], begin = torch.from_numpy(flat.reshape(size)), begin + 4 * count
    if not all(part.isfinite().all() for part in parts.values()):
        raise ValueError(f"{name} is damaged: it holds values that are not finite")
    options = LlamaOptions(inner, None if groups == heads else groups, tied=signed > 0)
    shape = NetworkShape(v, width, blocks, heads, dropout=0.0, model_length=length, llama=options)
    tensors = {"norm_final.weight": parts["norm_final"]}
    if signed < 0:
        tensors["linear.weight"] = parts["linear"]
    for i in range(blocks):
        layer = {part: parts[part][i] for part, size in layout if size[0] == blocks}
        q, k = halved(layer["q"], d), halved(layer["k"], d)
        tensors |= _block(i, {**layer, "q": q, "k": k})
    return Source(shape, tensors, parts["embedding"], begin=1)


def halved(matrix: Float[Tensor, "r h"], dim: int) -> Float[Tensor, "r h"]:
    """Reorder each head's rows from rotated pairs (2i, 2i + 1) to pairs (i, i + d/2)."""
    heads = matrix.reshape(-1, dim // 2, 2, matrix.shape[1])
    return heads.transpose(1, 2).reshape(matrix.shape).contiguous()


def _block(number: int, layer: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Name the tensors of a block as ours are named."""
    own = {
        "norm1.weight": layer["norm1"],
        "attn_qkv.weight": torch.cat([layer["q"], layer["k"], layer["v"]]),
        "attn_out.weight": layer["attn_out"],
        "norm2.weight": layer["norm2"],
        "mlp_in.weight": torch.cat([layer["gate"], layer["values"]]),
        "mlp_out.weight": layer["mlp_out"],
    }
    return {f"blocks.{number}.{name}": tensor for name, tensor in own.items()}


def read_transformers(folder: Path) -> Source:
    """Read a directory of transformers: config.json, and safetensors in one file or several."""
    path = folder / "config.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} has no config.json: expected a directory of a llama")
    config = parse_json(path.read_bytes(), str(path))
    if not isinstance(config, dict):
        raise ValueError(f"{path} must hold one JSON object, got {type(config).__name__}")
    shape = _shape(config, path)
    stored = Tensors(folder)
    tensors = {"norm_final.weight": stored("model.norm.weight", (shape.hidden_dim,))}
    options = shape.llama
    assert options is not None
    h, d, inner = shape.hidden_dim, shape.hidden_dim // shape.n_heads, options.mlp_dim
    groups = options.kv_heads or shape.n_heads
    layers = {
        "norm1": ("input_layernorm", (h,)),
        "q": ("self_attn.q_proj", (h, h)),
        "k": ("self_attn.k_proj", (groups * d, h)),
        "v": ("self_attn.v_proj", (groups * d, h)),
        "attn_out": ("self_attn.o_proj", (h, h)),
        "norm2": ("post_attention_layernorm", (h,)),
        "gate": ("mlp.gate_proj", (inner, h)),
        "values": ("mlp.up_proj", (inner, h)),
        "mlp_out": ("mlp.down_proj", (h, inner)),
    }
    for i in range(shape.n_blocks):
        layer = {
            ours: stored(f"model.layers.{i}.{theirs}.weight", size)
            for ours, (theirs, size) in layers.items()
        }
        tensors |= _block(i, layer)
    if not options.tied:
        tensors["linear.weight"] = stored("lm_head.weight", (shape.vocab_size, h))
    embedding = stored("model.embed_tokens.weight", (shape.vocab_size, h))
    begin = config.get("bos_token_id")
    if type(begin) is not int or not 0 <= begin < shape.vocab_size:
        raise ValueError(f"{path} must name the token that begins a text, got {begin!r}")
    return Source(shape, tensors, embedding, begin)


SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
)


def _shape(config: Mapping[str, Any], path: Path) -> NetworkShape:
    """Read the shape of a llama from transformers' config, refusing what ours does not have."""
    if config.get("model_type") != "llama":
        raise ValueError(f"{path} describes no llama, but {config.get('model_type')!r}")
    numbers = {name: config.get(name) for name in SIZES}
    wrong = next((n for n, value in numbers.items() if type(value) is not int or value < 1), None)
    if wrong is not None:
        raise ValueError(f"{path}: {wrong!r} must be a whole number, got {numbers[wrong]!r}")
    v, h, blocks, heads, inner, length = (int(number) for number in numbers.values())  # type: ignore[arg-type]
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default")) if isinstance(rope, dict) else rope
    strange = {
        "rope_scaling": kind if kind != "default" else None,
        "attention_bias": config.get("attention_bias"),
        "mlp_bias": config.get("mlp_bias"),
        "hidden_act": None if config.get("hidden_act", "silu") == "silu" else config["hidden_act"],
        "head_dim": None if config.get("head_dim", h // heads) in (h // heads, None)
        else config["head_dim"],
    }  # fmt: skip
    if found := {name: value for name, value in strange.items() if value}:
        raise ValueError(f"{path} has what llama blocks here have not: {found}")
    groups = config.get("num_key_value_heads") or heads
    theta = rope.get("rope_theta", config.get("rope_theta", 10_000.0))
    return NetworkShape(
        v, h, blocks, heads, dropout=0.0, model_length=length,
        llama=LlamaOptions(
            inner,
            None if groups == heads else groups,
            float(theta),
            float(config.get("rms_norm_eps", 1e-6)),
            bool(config.get("tie_word_embeddings", False)),
        ),
    )  # fmt: skip


class Tensors:
    """The tensors of a directory, in one file or in several, each asked for by name and shape."""

    def __init__(self, folder: Path) -> None:
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise FileNotFoundError(f"{folder} has no .safetensors file")
        self.folder = folder
        try:
            self.found = {name: t for file in files for name, t in load_file(file).items()}
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{folder} cannot be read as safetensors: {error}") from error

    def __call__(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Return a tensor as float32, or refuse one that is missing, misshapen or no number."""
        if name not in self.found:
            raise ValueError(f"{self.folder} is no llama: it has no tensor {name}")
        tensor = self.found[name].float()
        if tuple(tensor.shape) != shape:
            raise ValueError(
                f"{self.folder}: {name} has shape {tuple(tensor.shape)}, expected {shape}"
            )
        if not tensor.isfinite().all():
            raise ValueError(f"{self.folder}: {name} holds values that are not finite")
        return tensor
