"""`dsl sample`: draw sequences along any path through SNR space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from dsl.cli.options import OutputOptions, parse
from dsl.generation import SampleOptions


@dataclass(frozen=True, kw_only=True)
class Options(SampleOptions, OutputOptions):
    """Draw sequences from a model along a path through SNR space.

    A sampler is written with its steps, as in mdlm@64 or hybrid@16+32, and any of its fields after
    a colon, as in remdm-loop@128:eta=0.02,top_p=0.9.

    A document model chooses the length of its texts, up to --length. Under torchrun the sequences
    are split across processes; the texts do not change.
    """

    choices: ClassVar[dict[str, str]] = {"Samplers": "dsl.samplers"}
    prompts: Path | None = None
    """A file with one prompt per line; - is standard input. -n sequences are drawn for each."""

    def check(self) -> None:
        """Refuse values that no run can have."""
        super().check()
        self.check_output()
        if self.prompt and self.prompts is not None:
            raise ValueError("give --prompt or --prompts, not both")


def main(arguments: Sequence[str]) -> None:
    """Load the model, request the sequences, draw them."""
    options = parse(Options, "sample", arguments)
    from dsl.checkpoints import load
    from dsl.cli.drawing import draw, read_lines
    from dsl.generation import completion, named_sampler

    sampler = named_sampler(options.sampler)
    prompts = None if options.prompts is None else read_lines(options.prompts)
    length = options.length if options.stride is None else None
    model = load(options.model, length=length, device=options.device)
    request = completion(model, options, sampler=sampler, prompts=prompts)
    draw(request, options, ["sample", *arguments])
