"""Convert llama-shaped models to causal, masked or DSL models."""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load_file
from tokenizers import AddedToken, Tokenizer
from torch import Tensor

from dsl._util import files
from dsl._util.config import shown
from dsl._util.files import parse_json
from dsl.checkpoints.convert import require_new
from dsl.checkpoints.loading import TEACHERS, load
from dsl.checkpoints.surgery import causal_parity, localized, masked
from dsl.data import tokenizers
from dsl.data.blocks import read_texts
from dsl.data.sources import default_cache
from dsl.data.tokenizers import Pieces, bracketed, encode, merges
from dsl.families import registry as table
from dsl.models import folder
from dsl.models.ar import ArModel, ArShape
from dsl.models.config import NetworkShape
from dsl.models.llama import LlamaOptions


def most_frequent(tokenizer: Tokenizer, texts: Iterable[str]) -> list[int]:
    """Return the tokens of texts, most frequent first."""
    counts = Counter(token for text in texts for token in encode(tokenizer, text))
    return [token for token, _ in sorted(counts.items(), key=lambda found: (-found[1], found[0]))]


def cut(
    tokenizer: Tokenizer, wanted: Iterable[int], most: int, end: int
) -> tuple[Tokenizer, list[int]]:
    """Restrict a BPE tokenizer; return it with the old ids of its tokens.

    Tokens are kept in the order of `wanted`, each with the tokens it is merged from, while there
    is room. A text whose tokens are all kept is encoded as before.

    Args:
        tokenizer: A BPE tokenizer, such as GPT-2's or a llama's.
        wanted: Tokens by priority.
        most: Maximum vocabulary size, including the end.
        end: The token that ends a text.
    """
    state: dict[str, Any] = json.loads(tokenizer.to_str())
    model = state["model"]
    if model["type"] != "BPE":
        raise ValueError(f"only BPE tokenizers can be restricted, got {model['type']}")
    vocabulary: dict[str, int] = model["vocab"]
    text_of = {index: text for text, index in vocabulary.items()}
    special = str(tokenizer.id_to_token(end))
    pairs = [tuple(m) if isinstance(m, list) else tuple(m.split(" ", 1)) for m in model["merges"]]
    rank = {pair: place for place, pair in enumerate(pairs)}
    added = {token["content"] for token in state["added_tokens"]}
    merged = {a + b for a, b in pairs}
    # tokens that no merge makes are always kept: they spell all texts
    taken = {text for text in vocabulary if text not in merged and text not in added}
    if len(taken) + 1 > most:
        raise ValueError(
            f"the vocabulary must have at least {len(taken) + 1} tokens: the {len(taken)} basic "
            f"symbols and an end, got {most}"
        )
    for token in wanted:
        text = text_of.get(token)
        if text is None or text in added:
            continue
        parts = {*text, *(a + b for a, b in merges(text, lambda a, b: rank.get((a, b))))}
        if len(taken | parts) + 1 <= most:
            taken |= parts
    kept = sorted(vocabulary[text] for text in taken)
    smaller = {text_of[token]: place for place, token in enumerate(kept)}
    model["vocab"] = smaller
    model["merges"] = [[a, b] for a, b in pairs if {a, b, a + b} <= smaller.keys()]
    model["unk_token"] = None
    state["added_tokens"], state["post_processor"] = [], None
    made = Tokenizer.from_str(json.dumps(state))
    made.add_special_tokens([AddedToken(special)])
    return bracketed(made, "", special), [*kept, end]


HEADER = 7
"""Number of integers in the header of a llama2.c file."""


@dataclass(frozen=True, eq=False)
class Source:
    """The shape and tensors of a llama, with this package's names."""

    shape: NetworkShape
    tensors: Mapping[str, Tensor]
    """Blocks, final norm, and `linear.weight` if the head is not tied."""
    embedding: Float[Tensor, "v h"]
    begin: int
    """The token that begins every text and thereby ends the previous one."""

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
            temperature: Divides the logits, by scaling the final norm.
            length: Maximum sequence length; the source's if not given.
            ends: Whether a text ends at the first `begin` token.
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
    """Read a llama2.c file of version 0: seven integers, then the weights as float32."""
    if len(data) < 4 * HEADER:
        raise ValueError(f"{name} is not a llama2.c file: it has {len(data)} bytes")
    width, inner, blocks, heads, groups, signed, length = struct.unpack_from("<7i", data)
    sizes = (width, inner, blocks, heads, groups, abs(signed), length)
    if min(sizes) < 1 or max(sizes) > 10**6 or blocks > 1000 or width % heads or heads % groups:
        raise ValueError(f"{name} is not a llama2.c file: it begins with the sizes {sizes}")
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
    """Return the tensors of a block under this package's names."""
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
    """Read a transformers directory: config.json and one or more safetensors files."""
    path = folder / "config.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} has no config.json: expected the directory of a llama")
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
        raise ValueError(f"{path}: bos_token_id must be a token, got {begin!r}")
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
    """Read the shape of a llama from a transformers config; unsupported options are errors."""
    if config.get("model_type") != "llama":
        raise ValueError(f"{path}: model_type must be 'llama', got {config.get('model_type')!r}")
    numbers = {name: config.get(name) for name in SIZES}
    wrong = next((n for n, value in numbers.items() if type(value) is not int or value < 1), None)
    if wrong is not None:
        raise ValueError(f"{path}: {wrong!r} must be a whole number, got {numbers[wrong]!r}")
    v, h, blocks, heads, inner, length = (int(number) for number in numbers.values())  # type: ignore[arg-type]
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise ValueError(f"{path}: the rope settings must be an object, got {shown(rope)}")
    kind = rope.get("rope_type", rope.get("type", "default"))
    strange = {
        "rope_scaling": kind if kind != "default" else None,
        "attention_bias": config.get("attention_bias"),
        "mlp_bias": config.get("mlp_bias"),
        "hidden_act": None if config.get("hidden_act", "silu") == "silu" else config["hidden_act"],
        "head_dim": None if config.get("head_dim", h // heads) in (h // heads, None)
        else config["head_dim"],
    }  # fmt: skip
    if found := {name: value for name, value in strange.items() if value}:
        raise ValueError(f"{path} has options that are not supported: {found}")
    groups = config.get("num_key_value_heads") or heads
    if type(groups) is not int or groups < 1 or heads % groups or h % heads:
        raise ValueError(
            f"{path}: num_attention_heads must divide hidden_size and num_key_value_heads must "
            f"divide num_attention_heads, got {heads}, {h} and {shown(groups)}"
        )
    theta = rope.get("rope_theta", config.get("rope_theta", 10_000.0))
    eps = config.get("rms_norm_eps", 1e-6)
    for name, value in (("rope_theta", theta), ("rms_norm_eps", eps)):
        if type(value) not in (int, float) or not 0 < value < 1e30:
            raise ValueError(f"{path}: {name} must be a positive number, got {shown(value)}")
    return NetworkShape(
        v, h, blocks, heads, dropout=0.0, model_length=length,
        llama=LlamaOptions(
            inner,
            None if groups == heads else groups,
            float(theta),
            float(eps),
            bool(config.get("tie_word_embeddings", False)),
        ),
    )  # fmt: skip


class Tensors:
    """The tensors of all safetensors files in a directory."""

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
        """Return a tensor as float32, after checking its shape and values."""
        if name not in self.found:
            raise ValueError(f"{self.folder} is not a llama: it has no tensor {name}")
        tensor = self.found[name].float()
        if tuple(tensor.shape) != shape:
            raise ValueError(
                f"{self.folder}: {name} has shape {tuple(tensor.shape)}, expected {shape}"
            )
        if not tensor.isfinite().all():
            raise ValueError(f"{self.folder}: {name} holds values that are not finite")
        return tensor


Kind = Literal["ar", "mdlm", "dsl"]


@dataclass(frozen=True)
class Vocabulary:
    """A restricted vocabulary: the most frequent tokens of a text."""

    size: int
    text: Path


@dataclass(frozen=True)
class ConvertedLlama:
    """Report of a conversion from a llama."""

    kind: str
    parameters: int
    vocabulary: int
    of: int
    """Vocabulary size of the source."""
    parity: float
    """Largest difference from the source's logits under a causal mask, relative to the largest
    logit."""


def convert_llama(
    source: str | Path,
    out: Path,
    *,
    kind: Kind = "dsl",
    keep: Vocabulary | None = None,
    codebook_dim: int | None = None,
    mask_probability: float = 0.99,
    length: int | None = None,
    tokenizer: Path | None = None,
    cache: Path | None = None,
) -> ConvertedLlama:
    """Convert a llama-shaped model to one that can be sampled, scored and fine-tuned.

    Args:
        source: A llama2.c .bin file, a transformers directory or hub id, "stories15M", or a
            causal model of this package with llama blocks.
        out: The output directory; it must be new or empty.
        kind: The family: ar stays causal, mdlm is bidirectional, dsl also accepts noisy tokens.
        keep: A restricted vocabulary; its probabilities are renormalised.
        codebook_dim: Dimension of a token state; v - 1 or 64 if not given.
        mask_probability: q(MASK | z = 0) of the converter.
        length: Maximum sequence length; the source's if not given.
        tokenizer: A tokenizer.json, or llama2.c's tokenizer.bin; the source's if not given.
        cache: Cache directory for downloads.
    """
    require_new(out)
    network, encoding, of = _read(str(source), keep, length, tokenizer, cache or default_cache())
    made: Any = network
    if kind == "mdlm":
        made = masked(network)
    elif kind == "dsl":
        made = localized(network, codebook_dim=codebook_dim, mask_probability=mask_probability)
    near = 0.0 if kind == "ar" else causal_parity(network, made)
    table.FAMILIES.find(kind, "kind").write(made, out)
    if encoding is not None:
        files.write_text(out / tokenizers.TOKENIZER, encoding.to_str(pretty=True))
    weights = sum(parameter.numel() for parameter in made.parameters())
    return ConvertedLlama(kind, weights, network.vocab_size, of, near)


def _read(
    source: str, keep: Vocabulary | None, length: int | None, tokenizer: Path | None, cache: Path
) -> tuple[ArModel, Tokenizer | None, int]:
    """Return the causal network, its tokenizer if any, and the source's vocabulary size."""
    path = Path(source).expanduser()
    own: Tokenizer | None = None
    if source.startswith("teacher:") or _is_ours(path):
        model = load(source)
        if not isinstance(model.denoiser, ArModel) or model.denoiser.config.llama is None:
            raise ValueError(f"{source} is not a causal model with llama blocks")
        if keep is not None:
            raise ValueError(
                f"the vocabulary of {source} cannot be restricted: it is already converted"
            )
        return model.denoiser, model.tokenizer, model.vocab_size
    if source in TEACHERS:
        found, pieces = TEACHERS[source].llama(cache / "downloads", lambda *_: None)
        own = pieces.whole()
    elif path.suffix == ".bin" and path.is_file():
        found = read_llama2c(path.read_bytes(), str(path))
        beside = tokenizer if tokenizer is not None and tokenizer.suffix == ".bin" else None
        beside = beside or path.with_name("tokenizer.bin")
        if beside.is_file():
            table_size = found.shape.vocab_size
            own = Pieces.read(beside.read_bytes(), table_size, str(beside)).whole()
    else:
        where = folder.locate(source, weights="*.safetensors")
        found = read_transformers(where)
        file = where / tokenizers.TOKENIZER
        own = tokenizers.read(file) if file.is_file() else None
    if tokenizer is not None and tokenizer.suffix != ".bin":
        own = tokenizers.read(tokenizer)
    return _restricted(found, own, keep, length)


def _restricted(
    found: Source, own: Tokenizer | None, keep: Vocabulary | None, length: int | None
) -> tuple[ArModel, Tokenizer | None, int]:
    of = found.shape.vocab_size
    longest = length or found.shape.model_length
    if own is not None and own.get_vocab_size() != of:
        raise ValueError(f"the tokenizer has {own.get_vocab_size()} tokens, the network {of}")
    if keep is None:
        return found.causal(length=longest), own, of
    if own is None:
        raise ValueError("restricting the vocabulary needs its tokenizer: pass --tokenizer")
    wanted = most_frequent(own, read_texts(keep.text, separate_lines=False))
    smaller, kept = cut(own, wanted, keep.size, found.begin)
    return found.causal(kept, length=longest), smaller, of


def _is_ours(path: Path) -> bool:
    config = path / folder.CONFIG
    return config.is_file() and "kind" in folder.read_config(path)
