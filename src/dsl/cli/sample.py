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

    A sampler is a name with its steps, such as mdlm@64 or hybrid@16+32, and optional fields after a
    colon, such as remdm-loop@128:eta=0.02,top_p=0.9.

    Texts are printed one per line. If the model can write line breaks, a line --- separates them.

    A document model chooses the length of its texts, up to --length. Under torchrun the sequences
    are split across processes; the texts do not change.
    """

    choices: ClassVar[dict[str, str]] = {"Samplers": "dsl.samplers"}
    prompts: Path | None = None
    """File with one prompt per line, or - for standard input; -n sequences for each."""
    hints: Path | None = None
    """JSON file, or - for standard input: a list with a hint for each position, or a list of -n
    such lists. Hints are null, "a", {"token": "a", "confidence": 0.8}, {"token": "a", "snr": 2.0},
    {"allowed": ["a", "b"]} and {"n_best": {"a": 0.6, "b": 0.3}}."""

    def check(self) -> None:
        """Reject invalid values."""
        super().check()
        self.check_output()
        if self.prompt and self.prompts is not None:
            raise ValueError("give --prompt or --prompts, not both")
        if self.hints is not None and (self.prompt or self.suffix or self.prompts is not None):
            raise ValueError("give a prompt or --hints, not both: hints can hold known tokens")


def main(arguments: Sequence[str]) -> None:
    """Load the model, request the sequences, draw them."""
    options = parse(Options, "sample", arguments)
    from dsl.checkpoints import load
    from dsl.cli.drawing import draw, read_json, read_lines
    from dsl.generation import completion, model_length, named_sampler

    sampler = named_sampler(options.sampler)
    prompts = None if options.prompts is None else read_lines(options.prompts)
    hints = None if options.hints is None else read_json(options.hints)
    length = model_length(options, hints)
    model = load(options.model, length=length, device=options.device)
    request = completion(model, options, sampler=sampler, prompts=prompts, hints=hints)
    draw(request, options, ["sample", *arguments])
