"""Convert checkpoints: MDLM to DSL and back, to a new vocabulary, or to float16."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer

from dsl._util import files
from dsl.checkpoints.loading import Model, bundled, directory, load
from dsl.checkpoints.mdlm import convert, parity, read
from dsl.checkpoints.surgery import at_endpoints, localized, masked_parity
from dsl.checkpoints.vocabulary import Ancestry, respelled
from dsl.data import tokenizers
from dsl.data.bpe import tokenizer_of
from dsl.data.corpora import Corpus, prepare
from dsl.data.sources import default_cache
from dsl.data.tokenizers import TOKENIZER, decode
from dsl.families.dsl import DSL
from dsl.families.mdlm import MdlmFamily, MdlmModel
from dsl.models import folder
from dsl.models.dsl import DSLModel

MDLM = MdlmFamily()
CERTAIN = 50.0
"""A bias of [MASK] with q(MASK | z = 0) = 1 up to rounding, as in MDLM."""
COUNTED = 10_000_000
"""Bytes of a corpus used to count characters."""


@dataclass(frozen=True)
class Converted:
    """Report of a conversion from MDLM."""

    parameters: int
    vocabulary: int
    moving_average: bool
    """Whether the weights are the moving average."""
    parity: float
    """Largest difference from MDLM's logits, relative to the largest logit."""
    parity_at_mask_bias_50: float
    """The same with q(MASK | z = 0) = 1."""


def convert_mdlm(
    source: str | Path,
    out: Path,
    *,
    mask_index: int | None = None,
    mask_probability: float = 0.99,
    codebook_dim: int | None = None,
    length: int | None = None,
    tokenizer: Path | None = None,
) -> Converted:
    """Convert an MDLM checkpoint to a DSL model that can be sampled, scored and fine-tuned.

    Args:
        source: A directory, a file, a hub id, or the name of a bundled model.
        out: The output directory; it must be new or empty.
        mask_index: The id of [MASK]; the last one if not given.
        mask_probability: q(MASK | z = 0) of the converter.
        codebook_dim: Dimension of a token state; v - 1 or 64 if not given.
        length: Maximum sequence length; the source's, or 1024 if unknown.
        tokenizer: A tokenizer.json to store with the model; the source's if not given.
    """
    require_new(out)
    given = None if tokenizer is None else tokenizers.read(tokenizer)
    where = Path(directory(source)) if str(source) in bundled() else Path(source)
    if (own := _masked_llama(where)) is not None:
        made = localized(own, codebook_dim=codebook_dim, mask_probability=mask_probability)
        return _write_localized(made, own, where, out)
    found = read(str(where), mask_index=mask_index)
    config = folder.read_config(where) if (where / folder.CONFIG).is_file() else {}
    own = config.get("model_length", 1024)
    longest = length or (own if isinstance(own, int) and 0 < own <= 10**6 else 1024)
    model = convert(
        found, codebook_dim=codebook_dim, mask_probability=mask_probability, length=longest
    )
    if given is not None and given.get_vocab_size() != model.vocab_size:
        raise ValueError(
            f"{tokenizer} must have {model.vocab_size} tokens as the model, "
            f"got {given.get_vocab_size()}"
        )
    near = parity(found, model, length=min(64, longest))
    model.save_pretrained(out)
    with torch.no_grad():
        model.converter.bias[-1] = CERTAIN
    nearest = parity(found, model, length=min(64, longest))
    _beside(where, out)
    if given is not None:
        files.write_text(out / TOKENIZER, given.to_str(pretty=True))
    weights = sum(parameter.numel() for parameter in model.parameters())
    return Converted(weights, model.config.vocab_size, found.averaged, near, nearest)


def _masked_llama(where: Path) -> MdlmModel | None:
    """Load an MDLM model with llama blocks; None for other checkpoints."""
    if not (where / folder.CONFIG).is_file() or "llama" not in folder.read_config(where):
        return None
    network = load(where).denoiser
    return network if isinstance(network, MdlmModel) else None


def _write_localized(made: DSLModel, source: MdlmModel, where: Path, out: Path) -> Converted:
    near = masked_parity(source, made)
    DSL.write(made, out)
    with torch.no_grad():
        made.converter.bias[-1] = CERTAIN
    _beside(where, out)
    weights = sum(parameter.numel() for parameter in made.parameters())
    return Converted(weights, made.vocab_size, True, near, masked_parity(source, made))


@dataclass(frozen=True)
class Respelled:
    """Report of a conversion to a new vocabulary."""

    parameters: int
    vocabulary: int
    of: int
    """Vocabulary size of the source."""


def convert_alphabet(
    source: str | Path,
    out: Path,
    corpus: str,
    *,
    blocks: int | None = None,
    length: int | None = None,
    cache: Path | None = None,
) -> Respelled:
    """Convert a character model to the characters of a corpus, to be fine-tuned.

    Args:
        source: A DSL model of this package.
        out: The output directory; it must be new or empty.
        corpus: The text whose characters become the vocabulary.
        blocks: Number of blocks; the source's if not given.
        length: Maximum sequence length; the source's if not given.
        cache: Cache directory for corpora.
    """
    require_new(out)
    model, cache = load(source), cache or default_cache()
    text = prepare(corpus, cache)
    encoding = tokenizer_of(
        text, "characters", cache, kept=out / TOKENIZER, on_progress=lambda *_: None
    )
    made = respell(model, encoding, text, blocks=blocks, length=length)
    DSL.write(made, out)
    _beside(model.weights or out, out)
    files.write_text(out / TOKENIZER, encoding.to_str(pretty=True))
    weights = sum(parameter.numel() for parameter in made.parameters())
    return Respelled(weights, made.vocab_size, model.vocab_size)


def respell(
    model: Model,
    encoding: Tokenizer,
    text: Corpus,
    *,
    blocks: int | None = None,
    length: int | None = None,
) -> DSLModel:
    """Return a character model with the vocabulary of another tokenizer.

    Args:
        model: A DSL model of this package.
        encoding: The new tokenizer.
        text: The corpus whose character counts divide the probability of known characters.
        blocks: Number of blocks; the model's if not given.
        length: Maximum sequence length; the model's if not given.
    """
    if not isinstance(model.denoiser, DSLModel) or model.tokenizer is None:
        raise ValueError(f"{model.name} is not a DSL model with a tokenizer")
    counts = Counter(text.read("train", COUNTED).decode("utf-8", errors="ignore"))
    ancestry = Ancestry.of(_symbols(model.tokenizer), _symbols(encoding), counts)
    return respelled(model.denoiser, ancestry, blocks=blocks, length=length)


def is_spelled(tokenizer: Tokenizer) -> bool:
    """Return whether every token is one character."""
    return all(len(symbol) == 1 for symbol in _symbols(tokenizer))


def _symbols(tokenizer: Tokenizer) -> list[str]:
    return [decode(tokenizer, [token]) for token in range(tokenizer.get_vocab_size())]


def convert_masked(source: str | Path, out: Path) -> int:
    """Convert a DSL model to an MDLM model with the same logits; return its number of weights."""
    require_new(out)
    model = load(source)
    if not isinstance(model.denoiser, DSLModel) or model.weights is None:
        raise ValueError(f"{source} is not a DSL model")
    made = at_endpoints(model.denoiser)
    MDLM.write(made, out)
    _beside(model.weights, out)
    return sum(parameter.numel() for parameter in made.parameters())


def halve(source: str | Path, out: Path) -> int:
    """Write a checkpoint with float16 weights; return its size in bytes."""
    require_new(out)
    model = load(source)
    if model.weights is None:
        raise ValueError(f"{source} has no weights")
    model.family.write(model.denoiser, out, half=True)
    _beside(model.weights, out)
    return sum(file.stat().st_size for file in out.iterdir())


def require_new(out: Path) -> None:
    """Raise an error unless a directory is new or empty."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} exists and is not an empty directory")
    files.require_place(out, directory=True)


def _beside(source: Path, out: Path) -> None:
    """Copy the tokenizer and training.json."""
    for name in (TOKENIZER, folder.TRAINING):
        if (source / name).is_file():
            files.write_text(out / name, (source / name).read_text(encoding="utf-8"))
