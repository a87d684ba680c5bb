"""`dsl infill`: fill the gaps of a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import tyro

from dsl.cli.options import OutputOptions, parse
from dsl.generation import InfillOptions


@dataclass(frozen=True, kw_only=True)
class Options(InfillOptions, OutputOptions):
    """Fill the gaps of a text: "the capital of [12] is london" has a gap of twelve tokens.

    With --file, every line is such a text, and -n versions of each are printed in order. If the
    model can write line breaks, a line --- separates them. A document model treats the text as the
    start of a document; --ending changes this.
    """

    choices: ClassVar[dict[str, str]] = {"Samplers": "dsl.samplers"}
    text: tyro.conf.Positional[str] = ""
    """Text with gaps, each written as [length]."""
    file: Path | None = None
    """File with one text per line, or - for standard input."""

    def check(self) -> None:
        """Reject invalid values."""
        super().check()
        self.check_output()
        if bool(self.text) == (self.file is not None):
            raise ValueError('give either a text, such as "a [3] b", or --file, and not both')


def main(arguments: Sequence[str]) -> None:
    """Load the model, read the gaps, draw."""
    options = parse(Options, "infill", arguments)
    from dsl.checkpoints import load
    from dsl.cli.drawing import draw, read_lines
    from dsl.generation import infilling, named_sampler
    from dsl.generation.prompts import count_characters

    sampler = named_sampler(options.sampler)
    texts = [options.text] if options.file is None else read_lines(options.file)
    model = load(options.model, length=count_characters(texts[0]), device=options.device)
    draw(infilling(model, texts, options, sampler=sampler), options, ["infill", *arguments])
