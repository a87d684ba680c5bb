"""`dsl convert`: turn a model of another system into one of ours, or halve one of ours."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import tyro

from dsl.arguments import LENGTHS, within
from dsl.cli.options import parse


@dataclass(frozen=True)
class ConvertOptions:
    """Turn a pretrained model into a DSL model that can be sampled, scored and fine-tuned.

    For mdlm, SOURCE is a directory with model.safetensors, a .safetensors file, a hub id such as
    kuleshov-group/mdlm-owt, or a Lightning .ckpt, whose moving average is preferred; or an MDLM
    model of ours. Of pickles, only the zip archives of torch.save are opened, without running
    anything in them.

    For llama, SOURCE is a llama2.c .bin file, a directory or hub id of a llama-shaped model of
    transformers, stories15M, or a causal model of ours such as teacher:stories15M. --family says
    what becomes of it: ar keeps it, mdlm lets it see both sides, dsl also mixtures of tokens.

    For alphabet, SOURCE is a DSL model of characters, and OUT will hold one that begins with all it
    knows and learns the characters of --corpus: capitals begin as their small letters.

    For masked, SOURCE is a DSL model with DiT's blocks, and OUT will hold a masked model that says
    the same wherever tokens are masked or known: the beginning of a control.

    For float16, SOURCE is any model of ours, and OUT will hold the same weights in half the bytes.
    """

    system: tyro.conf.Positional[Literal["mdlm", "llama", "alphabet", "masked", "float16"]]
    """Where the checkpoint comes from, or what it shall become."""
    source: tyro.conf.Positional[str]
    """The checkpoint: a directory, a file, a hub id, or the name of a bundled model."""
    out: tyro.conf.Positional[Path]
    """Where the model is written."""
    family: Literal["ar", "mdlm", "dsl"] = "dsl"
    """What a llama becomes."""
    keep: int | None = None
    """Keep so many of a llama's tokens: the most frequent of --text, and all they are merged of."""
    text: Path | None = None
    """A text or .jsonl file in which the tokens are counted."""
    corpus: str | None = None
    """The corpus whose characters a model shall learn."""
    blocks: int | None = None
    """How many blocks a model with a new alphabet has; further ones begin as the identity."""
    mask_index: int | None = None
    """The id of [MASK]; the last one if not given (MDLM's text8 vocabulary has 4)."""
    mask_probability: float = 0.99
    """q(MASK | z = 0) of the converter."""
    codebook_dim: int | None = None
    """Coordinates of a token state; v - 1 for small vocabularies and 64 for large ones."""
    length: int | None = None
    """The longest sequence; the source's own, or 1024 if it does not say."""
    tokenizer: Path | None = None
    """A tokenizer.json (or llama2.c's tokenizer.bin) to put beside the model; the source's own if
    it has one."""
    json: bool = False
    """Print JSON."""

    def check(self) -> None:
        """Refuse values that no model can have."""
        within(self, mask_index=(0, 10**9), mask_probability=(0, 1), length=LENGTHS)
        within(self, codebook_dim=(1, 10**6), keep=(2, 10**7), blocks=(1, 1000))
        if (self.keep is None) != (self.text is None):
            raise ValueError("--keep and --text belong together: how many tokens, and of what text")
        if (self.corpus is None) != (self.system != "alphabet"):
            raise ValueError("alphabet, and only that, needs --corpus: whose characters it learns")


def main(arguments: Sequence[str]) -> None:
    """Convert, and say how near the source the model is."""
    options = parse(ConvertOptions, "convert", arguments)
    from dsl.conversion import convert_masked, convert_mdlm, halve

    if options.system == "float16":
        print(f"{options.out}: {halve(options.source, options.out):,} bytes")
        return
    if options.system == "masked":
        print(f"{options.out}: {convert_masked(options.source, options.out):,} weights")
        return
    if options.system == "llama":
        _llama(options)
        return
    if options.system == "alphabet":
        _alphabet(options)
        return
    made = convert_mdlm(
        options.source,
        options.out,
        mask_index=options.mask_index,
        mask_probability=options.mask_probability,
        codebook_dim=options.codebook_dim,
        length=options.length,
        tokenizer=options.tokenizer,
    )
    if options.json:
        print(json.dumps(asdict(made)))
        return
    print(
        f"{options.out}: {made.parameters:,} weights, {made.vocabulary:,} tokens, "
        f"{'averaged' if made.moving_average else 'raw'} weights\n"
        "largest difference from MDLM's logits where tokens are masked or known, relative to "
        f"the largest logit: {made.parity:.2g}, since a masked position reads as [MASK] with "
        f"probability {options.mask_probability:g}; were it certain: "
        f"{made.parity_at_mask_bias_50:.2g}"
    )


def _llama(options: ConvertOptions) -> None:
    from dsl.llama_conversion import Vocabulary, convert_llama

    keep = None
    if options.keep is not None and options.text is not None:
        keep = Vocabulary(options.keep, options.text)
    made = convert_llama(
        options.source,
        options.out,
        kind=options.family,
        keep=keep,
        codebook_dim=options.codebook_dim,
        mask_probability=options.mask_probability,
        length=options.length,
        tokenizer=options.tokenizer,
    )
    if options.json:
        print(json.dumps(asdict(made)))
        return
    print(
        f"{options.out}: {made.parameters:,} weights, {made.vocabulary:,} of {made.of:,} tokens, "
        f"family {made.kind}\nlargest difference from the source's logits with the causal mask "
        f"put back, relative to the largest logit: {made.parity:.2g}"
    )


def _alphabet(options: ConvertOptions) -> None:
    from dsl.conversion import convert_alphabet

    assert options.corpus is not None  # checked above
    made = convert_alphabet(
        options.source,
        options.out,
        options.corpus,
        blocks=options.blocks,
        length=options.length,
    )
    if options.json:
        print(json.dumps(asdict(made)))
        return
    print(
        f"{options.out}: {made.parameters:,} weights, {made.vocabulary} characters instead of "
        f"{made.of}"
    )
