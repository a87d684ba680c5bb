"""`dsl infill`: fill the gaps of a text, leaving what surrounds them as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class InfillOptions:
    """Fill the gaps of a text: "the capital of [12] is london" has a gap of twelve tokens."""

    text: tyro.conf.Positional[str]
    """The text, with every gap written as [length]."""
    n: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 1
    """How many different fillings."""
    model: str = "oracle:cyclic-7"
    """A checkpoint directory, a hub id, or oracle:cyclic-7, oracle:two-bit, oracle:markov."""
    sampler: str = "roar"
    """The path: a name with its steps and fields, or a YAML file with a full specification."""
    seed: int = 0
    """With a filling's index it determines the text."""
    batch_size: int = 32
    """Fillings drawn side by side."""
    out: Path | None = None
    """Write JSON lines here. If the file holds part of the same job, the rest is added."""
    overwrite: bool = False
    """Replace a file that holds another job."""
    trace: Path | None = None
    """Record every step of every filling here, as JSON lines; costs a full forward a step."""
    json: bool = False
    """Print one JSON object about the run instead of the texts."""
    device: str = "cpu"
    """Where the network runs, such as cuda:0."""

    def __post_init__(self) -> None:
        if self.n < 1 or self.batch_size < 1 or self.seed < 0:
            raise ValueError("-n and --batch-size must be at least 1, and --seed at least 0")


def main(arguments: Sequence[str]) -> None:
    """Load the model, read the gaps, draw."""
    options = tyro.cli(InfillOptions, args=list(arguments), prog="dsl infill")
    from dsl.cli.drawing import Drawing, about, draw, read_sampler
    from dsl.generation import Job, Start, count_characters, parse_gaps
    from dsl.loading import load

    sampler = read_sampler(options.sampler)
    model = load(options.model, length=count_characters(options.text), device=options.device)
    start = Start.known(model, [parse_gaps(model, options.text)])
    job = Job(model, sampler, start, options.seed)
    draw(
        job,
        about(job, ["dsl", "infill", *arguments], options.text),
        Drawing(
            options.n,
            options.batch_size,
            options.out,
            options.overwrite,
            options.trace,
            options.json,
        ),
    )
