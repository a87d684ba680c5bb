"""`dsl infill`: fill the gaps of a text, leaving what surrounds them as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tyro

from dsl.cli.options import DrawingOptions, parse


@dataclass(frozen=True, kw_only=True)
class InfillOptions(DrawingOptions):
    """Fill the gaps of a text: "the capital of [12] is london" has a gap of twelve tokens."""

    text: tyro.conf.Positional[str]
    """The text, with every gap written as [length]."""
    sampler: str = "roar"
    """The path: a name with its steps and fields, or a YAML file with a full specification."""


def main(arguments: Sequence[str]) -> None:
    """Load the model, read the gaps, draw."""
    options = parse(InfillOptions, "infill", arguments)
    from dsl.cli.drawing import about, draw, read_sampler
    from dsl.generation import Job, Start, count_characters, parse_gaps
    from dsl.loading import load

    sampler = read_sampler(options.sampler)
    model = load(options.model, length=count_characters(options.text), device=options.device)
    start = Start.known(model, [parse_gaps(model, options.text)])
    job = Job(model, sampler, start, options.seed)
    draw(job, about(job, ["dsl", "infill", *arguments], options.text), options)
