"""`dsl convert`: turn a checkpoint of another system into one of ours, or halve one of ours."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from dsl.cli.options import parse


@dataclass(frozen=True)
class ConvertOptions:
    """Turn an MDLM checkpoint into a DSL model that can be sampled, scored and fine-tuned.

    For mdlm, SOURCE is a directory with model.safetensors, a .safetensors file, a hub id such as
    kuleshov-group/mdlm-owt, or a Lightning .ckpt, whose moving average is preferred and which is
    opened without running anything in it. For float16, SOURCE is any model of ours, and OUT will
    hold the same weights in half the bytes.
    """

    system: tyro.conf.Positional[Literal["mdlm", "float16"]]
    """Where the checkpoint comes from, or what it shall become."""
    source: tyro.conf.Positional[str]
    """The checkpoint: a directory, a file, a hub id, or the name of a bundled model."""
    out: tyro.conf.Positional[Path]
    """Where the model is written."""
    mask_index: int | None = None
    """The id of [MASK]; the last one if not given (MDLM's text8 vocabulary has 4)."""
    mask_probability: float = 0.99
    """q(MASK | z = 0) of the converter."""
    codebook_dim: int | None = None
    """Coordinates of a token state; v - 1 for small vocabularies and 64 for large ones."""
    length: int | None = None
    """The longest sequence; the source's own, or 1024 if it does not say."""
    tokenizer: Path | None = None
    """A tokenizer.json to put beside the model; the source's own if it has one."""
    json: bool = False
    """Print JSON."""


def main(arguments: Sequence[str]) -> None:
    """Read, convert, compare, write."""
    options = parse(ConvertOptions, "convert", arguments)
    if options.out.exists() and (not options.out.is_dir() or any(options.out.iterdir())):
        raise ValueError(f"{options.out} exists and is not an empty directory")
    if options.system == "float16":
        halve(options.source, options.out)
        return
    import shutil

    import torch

    from dsl.loading import bundled, directory
    from dsl.models import folder
    from dsl.models.mdlm_checkpoint import convert, parity, read

    wanted = options.source
    if wanted in bundled():
        wanted = str(directory(wanted))
    source = read(wanted, mask_index=options.mask_index)
    beside = Path(wanted)
    told = folder.read_config(beside) if (beside / folder.CONFIG).is_file() else {}
    longest = options.length or int(told.get("model_length", 1024))
    model = convert(
        source,
        codebook_dim=options.codebook_dim,
        mask_probability=options.mask_probability,
        length=longest,
    )
    length = min(64, longest)
    report = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "vocabulary": model.config.vocab_size,
        "moving_average": source.averaged,
        "parity": parity(source, model, length=length),
    }
    model.save_pretrained(options.out)
    with torch.no_grad():
        model.converter.bias[-1] = 50.0  # a mask that is nothing but a mask: MDLM exactly
    report["parity_at_mask_bias_50"] = parity(source, model, length=length)
    own = beside / "tokenizer.json"
    tokenizer = options.tokenizer or (own if own.is_file() else None)
    if tokenizer is not None:
        shutil.copyfile(tokenizer, options.out / "tokenizer.json")
    if options.json:
        print(json.dumps(report))
        return
    print(
        f"{options.out}: {report['parameters']:,} weights, {report['vocabulary']:,} tokens, "
        f"{'averaged' if source.averaged else 'raw'} weights\n"
        f"largest difference from MDLM's logits where tokens are masked or known: "
        f"{report['parity']:.2g}, since a masked position reads as [MASK] with probability "
        f"{options.mask_probability:g}; were it certain: {report['parity_at_mask_bias_50']:.2g}"
    )


def halve(source: str, out: Path) -> None:
    """Write a model with float16 weights, and its tokenizer."""
    from dsl.loading import load, read_network, write_network

    model = load(source)
    if model.weights is None:
        raise ValueError(f"{source} has no weights")
    write_network(read_network(model.weights), out, half=True)
    if model.tokenizer is not None:
        model.tokenizer.save(str(out / "tokenizer.json"))
    print(f"{out}: {sum(file.stat().st_size for file in out.iterdir()):,} bytes")
