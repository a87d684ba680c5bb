"""`dsl infill`: fill the gaps of a text, leaving what surrounds them as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from dsl.cli.options import DrawingOptions, parse


@dataclass(frozen=True, kw_only=True)
class InfillOptions(DrawingOptions):
    """Fill the gaps of a text: "the capital of [12] is london" has a gap of twelve tokens.

    With --file, every line is such a text, and -n versions of each are printed in their order. To a
    model of documents a text begins one, and what follows it is unknown and not written.
    """

    text: tyro.conf.Positional[str] = ""
    """The text, with every gap written as [length]."""
    file: Path | None = None
    """A file with a text in every line; - is the standard input."""
    ending: Literal["unknown", "here", "open"] = "unknown"
    """What follows the text, to a model of documents: nobody knows; here it ends; or the model
    writes on."""
    sampler: str = "roar"
    """The path: a name with its steps and fields, or a YAML file with a full specification."""

    def check(self) -> None:
        """Refuse values that no run can have."""
        super().check()
        if bool(self.text) == (self.file is not None):
            raise ValueError('give one text, such as "a [3] b", or --file, and not both')


def main(arguments: Sequence[str]) -> None:
    """Load the model, read the gaps, draw."""
    options = parse(InfillOptions, "infill", arguments)
    from dsl.cli.drawing import draw, read_lines, read_sampler, what_is_given
    from dsl.drawing import infillings
    from dsl.known_text import count_characters
    from dsl.loading import load
    from dsl.provenance import about
    from dsl.serving import require_served

    sampler = read_sampler(options.sampler, options)
    given = [options.text] if options.file is None else read_lines(options.file)
    model = load(options.model, length=count_characters(given[0]), device=options.device)
    require_served(model, sampler)
    texts = infillings(
        model,
        sampler,
        given,
        ending=options.ending,
        n=options.n,
        seed=options.seed,
        guidance=options.guidance,
    )
    lengths = {len(row) for row in texts.hints}
    description = about(
        model,
        sampler,
        length=lengths.pop() if len(lengths) == 1 else None,
        seed=options.seed,
        given=what_is_given(
            options.file,
            [f"{text}[…]" for text in given] if options.ending == "open" else given,
            options.guidance,
        ),
        command=["dsl", "infill", *arguments],
    )
    draw(texts, description, options)
