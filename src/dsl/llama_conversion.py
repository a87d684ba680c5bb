"""Llama-shaped models become models of ours: causal, masked or localized."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tokenizers import Tokenizer

from dsl import files
from dsl.adaptation import causal_parity, localized, masked
from dsl.conversion import require_new
from dsl.data import stories, tokenizers
from dsl.data.blocks import read_texts
from dsl.data.cache import default_cache
from dsl.data.cutting import cut, most_frequent
from dsl.data.pieces import Pieces
from dsl.families import table
from dsl.loading import load
from dsl.models import folder
from dsl.models.ar import ArModel
from dsl.models.llama_import import Source, read_llama2c, read_transformers

Kind = Literal["ar", "mdlm", "dsl"]


@dataclass(frozen=True)
class Vocabulary:
    """Which tokens are kept: the most frequent ones of a text."""

    size: int
    text: Path


@dataclass(frozen=True)
class ConvertedLlama:
    """What became of a llama."""

    kind: str
    parameters: int
    vocabulary: int
    of: int
    """The tokens of the source."""
    parity: float
    """The largest difference from the source's logits with the causal mask put back, relative to
    the largest of them."""


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
    """Turn a llama-shaped model into one that can be sampled, scored and fine-tuned.

    Args:
        source: A llama2.c .bin file, a directory of transformers or a hub id, "stories15M", or a
            causal model of ours with llama's blocks.
        out: Where the model is written; the directory must be new or empty.
        kind: The family: ar keeps it as it is, mdlm lets it see both sides, dsl also mixtures.
        keep: Restrict the vocabulary; the probabilities of what is kept are renormalised.
        codebook_dim: Coordinates of a token state; v - 1 or 64 if not given.
        mask_probability: q(MASK | z = 0) of the converter.
        length: The longest sequence; the source's own if not given.
        tokenizer: A tokenizer.json, or llama2.c's tokenizer.bin; the source's own if it has one.
        cache: Where what is fetched is kept.
    """
    require_new(out)
    network, encoding, of = _read(str(source), keep, length, tokenizer, cache or default_cache())
    made: Any = network
    if kind == "mdlm":
        made = masked(network)
    elif kind == "dsl":
        made = localized(network, codebook_dim=codebook_dim, mask_probability=mask_probability)
    near = 0.0 if kind == "ar" else causal_parity(network, made)
    table.by_name(kind, "kind").write(made, out)
    if encoding is not None:
        files.write_text(out / tokenizers.TOKENIZER, encoding.to_str(pretty=True))
    weights = sum(parameter.numel() for parameter in made.parameters())
    return ConvertedLlama(kind, weights, network.vocab_size, of, near)


def _read(
    source: str, keep: Vocabulary | None, length: int | None, tokenizer: Path | None, cache: Path
) -> tuple[ArModel, Tokenizer | None, int]:
    """Read the causal network, its tokenizer if there is one, and its number of tokens."""
    path = Path(source).expanduser()
    own: Tokenizer | None = None
    if source.startswith("teacher:") or _is_ours(path):
        model = load(source)
        if not isinstance(model.denoiser, ArModel) or model.denoiser.config.llama is None:
            raise ValueError(f"{source} is no causal model of llama's blocks")
        if keep is not None:
            raise ValueError(f"{source} is a model of ours: its vocabulary cannot be cut again")
        return model.denoiser, model.tokenizer, model.vocab_size
    if source == stories.NAME:
        found, pieces = stories.fetch(cache / "downloads", lambda *_: None)
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
        raise ValueError(
            f"the tokenizer has {own.get_vocab_size()} tokens, the network beside it {of}"
        )
    if keep is None:
        return found.causal(length=longest), own, of
    if own is None:
        raise ValueError("a vocabulary can be cut only with its tokenizer: name it")
    wanted = most_frequent(own, read_texts(keep.text, separate_lines=False))
    smaller, kept = cut(own, wanted, keep.size, found.begin)
    return found.causal(kept, length=longest), smaller, of


def _is_ours(path: Path) -> bool:
    config = path / folder.CONFIG
    return config.is_file() and "kind" in folder.read_config(path)
