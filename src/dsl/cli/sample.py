"""`dsl sample`: draw sequences along any path, and go on where an earlier run stopped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dsl.cli.options import DrawingOptions, parse


@dataclass(frozen=True, kw_only=True)
class SampleOptions(DrawingOptions):
    """Draw sequences from a model along a path through SNR space.

    Samplers: mdlm@T, fb@T, dfm@T, remdm-cap@T, remdm-rescale@T, remdm-conf@T, remdm-loop@T,
    first-hitting, first-hitting@T, roar, causal, edm@T, localize@T, hybrid@Tc+Tm; and vp@T for VP
    networks. Any field can follow after a colon, as in remdm-loop@128:eta=0.02,top_p=0.9.

    Under torchrun the sequences are shared by the processes; the texts do not change.
    """

    length: int | None = None
    """Tokens in a sequence; the model's own length if not given."""
    sampler: str = "mdlm@64"
    """The path: a name with its steps and fields, or a YAML file with a full specification."""
    prompt: str = ""
    """Text that every sequence begins with."""
    suffix: str = ""
    """Text that every sequence ends with."""


def main(arguments: Sequence[str]) -> None:
    """Load the model, pin prompt and suffix, draw."""
    options = parse(SampleOptions, "sample", arguments)
    from dsl.cli.drawing import about, draw, read_sampler
    from dsl.evidence import Known, Observation, Unknown
    from dsl.generation import Job, Start
    from dsl.loading import load

    sampler = read_sampler(options.sampler)
    model = load(options.model, length=options.length, device=options.device)
    length = model.length if options.length is None else options.length
    model.require_length(length)
    before = model.encode(options.prompt) if options.prompt else []
    after = model.encode(options.suffix) if options.suffix else []
    gap = length - len(before) - len(after)
    if gap < 0:
        raise ValueError(f"prompt and suffix have {length - gap} tokens, the sequence {length}")
    hints: list[Observation] = [Known(token) for token in before]
    hints += [Unknown()] * gap + [Known(token) for token in after]
    job = Job(model, sampler, Start.known(model, [hints]), options.seed)
    given = f"{options.prompt}[{gap}]{options.suffix}"
    draw(job, about(job, ["dsl", "sample", *arguments], given), options)
