"""`dsl convert`: convert a pretrained model, or change its vocabulary or precision."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from dsl._util.validate import LENGTHS, within
from dsl._util.words import counted
from dsl.cli.options import parse


@dataclass(frozen=True)
class Options:
    """Convert a pretrained model to one that can be sampled, scored and fine-tuned.

    For mdlm, SOURCE is a directory with model.safetensors, a .safetensors file, a hub id such as
    kuleshov-group/mdlm-owt, a Lightning .ckpt (its EMA weights are preferred), or an MDLM model of
    this package. Pickles must be zip archives of torch.save; no code in them is executed.

    For llama, SOURCE is a llama2.c .bin file, a directory or hub id of a llama-shaped transformers
    model, stories15M, or a causal model of this package such as teacher:stories15M. --family sets
    the result: ar keeps the model causal, mdlm makes it bidirectional, dsl also accepts noisy
    tokens.

    For alphabet, SOURCE is a character-level DSL model. OUT starts from its weights and gets the
    characters of --corpus as its vocabulary; capitals are initialized from lower-case letters.

    For masked, SOURCE is a DSL model with DiT blocks. OUT is a masked model with the same outputs
    wherever tokens are masked or clean, as the starting point of a control experiment.

    For float16, SOURCE is any model of this package. OUT has the same weights in half precision.

    Example: dsl convert mdlm kuleshov-group/mdlm-owt owt-dsl
    """

    system: tyro.conf.Positional[Literal["mdlm", "llama", "alphabet", "masked", "float16"]]
    """The conversion: mdlm, llama, alphabet, masked or float16."""
    source: tyro.conf.Positional[str]
    """Checkpoint: a directory, a file, a hub id, or the name of a bundled model."""
    out: tyro.conf.Positional[Path]
    """Output directory."""
    family: Literal["ar", "mdlm", "dsl"] = "dsl"
    """Family of the converted llama."""
    keep: int | None = None
    """Keep only this many llama tokens: the most frequent ones in --text and their merge parts."""
    text: Path | None = None
    """Text or .jsonl file for the token counts of --keep."""
    corpus: str | None = None
    """Corpus whose characters become the vocabulary (alphabet only)."""
    blocks: int | None = None
    """Number of blocks (alphabet only); added blocks are initialized to the identity."""
    mask_index: int | None = None
    """Id of [MASK]. Default: the last id (in MDLM's text8 vocabulary it is 4)."""
    mask_probability: float = 0.99
    """q(MASK | z = 0) of the converter."""
    codebook_dim: int | None = None
    """Embedding dimension of a token. Default: v - 1 for small vocabularies, 64 for large ones."""
    length: int | None = None
    """Maximum sequence length. Default: the source's, or 1024 if the source has none."""
    tokenizer: Path | None = None
    """tokenizer.json (or llama2.c's tokenizer.bin) to store with the model. Default: the
    source's, if it has one."""
    json: bool = False
    """Print JSON."""

    def check(self) -> None:
        """Reject invalid values."""
        within(self, mask_index=(0, 10**9), mask_probability=(0, 1), length=LENGTHS)
        within(self, codebook_dim=(1, 10**6), keep=(2, 10**7), blocks=(1, 1000))
        if (self.keep is None) != (self.text is None):
            raise ValueError("--keep and --text must be given together")
        if self.system == "alphabet" and self.corpus is None:
            raise ValueError("--corpus is required for alphabet")
        if self.system != "alphabet" and self.corpus is not None:
            raise ValueError(f"--corpus is only for alphabet, got {self.system}")


def main(arguments: Sequence[str]) -> None:
    """Convert the model and report how close its outputs are to the source's."""
    options = parse(Options, "convert", arguments)
    made, text = CONVERSIONS[options.system](options)
    print(json.dumps(made) if options.json else f"{options.out}: {text}")


Converted = tuple[dict[str, Any], str]
"""A result for JSON, and for people."""


def _float16(options: Options) -> Converted:
    from dsl.checkpoints import halve

    size = halve(options.source, options.out)
    return {"bytes": size}, f"{size:,} bytes"


def _masked(options: Options) -> Converted:
    from dsl.checkpoints import convert_masked

    weights = convert_masked(options.source, options.out)
    return {"parameters": weights}, f"{weights:,} weights"


def _mdlm(options: Options) -> Converted:
    from dsl.checkpoints import convert_mdlm

    made = convert_mdlm(
        options.source, options.out, mask_index=options.mask_index, **_shape(options)
    )
    return asdict(made), (
        f"{counted(made.parameters, 'weight')}, {counted(made.vocabulary, 'token')}, "
        f"{'EMA' if made.moving_average else 'raw'} weights\n"
        "largest difference from MDLM's logits where tokens are masked or clean, relative to "
        f"the largest logit: {made.parity:.2g}, because a masked position has q(MASK) = "
        f"{options.mask_probability:g}; with q(MASK) = 1: "
        f"{made.parity_at_mask_bias_50:.2g}"
    )


def _llama(options: Options) -> Converted:
    from dsl.checkpoints import Vocabulary, convert_llama

    keep = None
    if options.keep is not None and options.text is not None:
        keep = Vocabulary(options.keep, options.text)
    made = convert_llama(
        options.source, options.out, kind=options.family, keep=keep, **_shape(options)
    )
    return asdict(made), (
        f"{made.parameters:,} weights, {made.vocabulary:,} of {made.of:,} tokens, "
        f"family {made.kind}\nlargest difference from the source's logits with a causal mask, "
        f"relative to the largest logit: {made.parity:.2g}"
    )


def _shape(options: Options) -> dict[str, Any]:
    names = ("codebook_dim", "mask_probability", "length", "tokenizer")
    return {name: getattr(options, name) for name in names}


def _alphabet(options: Options) -> Converted:
    from dsl.checkpoints import convert_alphabet

    assert options.corpus is not None  # checked above
    made = convert_alphabet(
        options.source, options.out, options.corpus, blocks=options.blocks, length=options.length
    )
    return asdict(made), (
        f"{made.parameters:,} weights, {counted(made.vocabulary, 'character')} instead of {made.of}"
    )


CONVERSIONS: dict[str, Callable[[Options], Converted]] = {
    "mdlm": _mdlm,
    "llama": _llama,
    "alphabet": _alphabet,
    "masked": _masked,
    "float16": _float16,
}
