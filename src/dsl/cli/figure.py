"""`dsl reproduce figure`: draw curves, trade-offs, paths, an animation or the geometry."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from dsl._util import files
from dsl._util.validate import LENGTHS, SEEDS, within
from dsl.cli.options import parse


@dataclass(frozen=True)
class Options:
    """Draw a figure from result files or, for writing and geometry, from a model.

    curves: validation loss against training tokens, from run directories. tradeoff: quality against
    denoiser calls, from the results.json of `dsl compare`. paths: the SNR of every token at every
    step, from files of `dsl sample --trace`. writing: an animation of a DSL model that writes along
    several paths, as SVG. geometry: the converter's output for γ times a token's embedding, from a
    DSL model (the paper's figure 2).

    Example: dsl reproduce figure tradeoff grid/results.json --out tradeoff.pdf
    """

    what: tyro.conf.Positional[Literal["curves", "tradeoff", "paths", "writing", "geometry"]]
    """Figure to draw: curves, tradeoff, paths, writing or geometry."""
    sources: tyro.conf.Positional[tuple[Path, ...]]
    """Run directories, one results.json, traces, or a model."""
    out: Path
    """Output file; the suffix sets the format."""
    tokens: tuple[str, ...] = ()
    """Tokens for geometry, as text. Default: 25 tokens spread over the vocabulary."""
    samplers: tuple[str, ...] = ("mdlm@24:top_p=0.9", "localize@48:noise=0.6,temperature=0")
    """Samplers for writing."""
    prompt: str = "Once upon a time"
    """Beginning of the text for writing."""
    length: int = 30
    """Tokens of the text for writing."""
    seed: int = 0
    """Random seed for writing."""

    def check(self) -> None:
        """Reject invalid values."""
        within(self, length=LENGTHS, seed=SEEDS)


def main(arguments: Sequence[str]) -> None:
    """Run `dsl reproduce figure`."""
    options = parse(Options, "reproduce figure", arguments)
    if not options.sources:
        raise ValueError(
            f"dsl reproduce figure {options.what} needs at least one file or directory"
        )
    _require_format(options.out)
    files.require_place(options.out)
    with files.whole(options.out) as part:
        _draw(options, part)
    print(options.out)


def _draw(options: Options, out: Path) -> None:
    if options.what == "curves":
        from dsl.apps.reproduce.curves import curves

        curves({run.name: run for run in options.sources}, out)
    elif options.what == "writing":
        from dsl.apps.reproduce.writing import animation, lane
        from dsl.checkpoints import load

        _require_svg(options)
        model = load(_model(options))
        lanes = [
            lane(model, name, prompt=options.prompt, length=options.length, seed=options.seed)
            for name in options.samplers
        ]
        out.write_text(animation(lanes), encoding="utf-8")
    elif options.what == "paths":
        from dsl.apps.demo.charts import paths, read_trace

        traces = {trace.stem: read_trace(trace) for trace in options.sources}
        if len(traces) < len(options.sources):
            raise ValueError("panels are named after their files, so file names must be unique")
        paths(traces, out)
    elif options.what == "geometry":
        _geometry(options, out)
    else:
        from dsl.apps.reproduce.tradeoff import tradeoff

        tradeoff(*_results(options.sources[0]), out)


def _require_format(out: Path) -> None:
    from matplotlib.backend_bases import FigureCanvasBase

    formats = sorted(f".{name}" for name in FigureCanvasBase.get_supported_filetypes())
    if out.suffix.lower() not in formats:
        raise ValueError(f"--out must end in one of {', '.join(formats)}; got {out}")


def _require_svg(options: Options) -> None:
    if options.out.suffix != ".svg":
        raise ValueError(f"this figure must be written as .svg, got {options.out}")


def _model(options: Options) -> str:
    """Return the one model that a figure is drawn from."""
    if len(options.sources) > 1:
        raise ValueError(
            f"figure {options.what} needs exactly one model, got {len(options.sources)}"
        )
    return str(options.sources[0])


def _results(path: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Read the rows of a comparison and the scores of real text; scores may be missing."""
    record = files.parse_json(path.read_bytes(), str(path))
    try:
        held_out = {name: score["mean"] for name, score in record["held_out"].items()}
        rows = [{**row, "nfe": float(row["nfe"])} for row in record["rows"]]
        named = all(isinstance(row[name], str) for row in rows for name in ("model", "sampler"))
    except (KeyError, TypeError, AttributeError, ValueError):
        named = False
    scores = [*held_out.values(), *(v for row in rows for v in row.values())] if named else []
    if not named or not all(isinstance(score, str | int | float | None) for score in scores):
        raise ValueError(f"{path} is not the results.json of dsl compare")
    return rows, held_out


PROBES = 25
"""Tokens in the paper's figure 2."""


def _geometry(options: Options, out: Path) -> None:
    import torch

    from dsl.apps.reproduce.geometry import geometry, rays
    from dsl.checkpoints import load

    model = load(_model(options))
    network = model.denoiser
    if model.weights is None or not hasattr(network, "converter"):
        raise ValueError(f"{model.name} has no converter: figure geometry needs a DSL model")
    if options.tokens:
        encoded = {text: model.encode(text) for text in options.tokens}
        for text, ids in encoded.items():
            if len(ids) != 1:
                raise ValueError(
                    f"{text!r} must be a single token of {model.name}, got {len(ids)} tokens"
                )
        chosen = [ids[0] for ids in encoded.values()]
    else:
        v = network.config.vocab_size
        chosen = torch.linspace(0, v - 1, min(v, PROBES)).round().long().tolist()
    snr = torch.logspace(-2, math.log10(80), 60)
    names = [model.decode([token]).replace(" ", "␣") for token in chosen]
    geometry(rays(network, chosen, snr), names, out)
