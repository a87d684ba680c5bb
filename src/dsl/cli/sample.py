"""`dsl sample`: draw sequences along any path, and go on where an earlier run stopped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class SampleOptions:
    """Draw sequences from a model along a path through SNR space.

    Samplers: mdlm@T, fb@T, dfm@T, remdm-cap@T, remdm-rescale@T, remdm-conf@T, remdm-loop@T,
    first-hitting, first-hitting@T, roar, causal, edm@T, localize@T, hybrid@Tc+Tm. Any field can
    follow after a colon, as in remdm-loop@128:eta=0.02,top_p=0.9.

    Under torchrun the sequences are shared by the processes; the texts do not change.
    """

    n: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 1
    """How many sequences."""
    model: str = "oracle:markov"
    """A checkpoint directory, a hub id, or oracle:cyclic-7, oracle:two-bit, oracle:markov."""
    length: int | None = None
    """Tokens in a sequence; the model's own length if not given."""
    sampler: str = "mdlm@64"
    """The path: a name with its steps and fields, or a YAML file with a full specification."""
    seed: int = 0
    """With a sequence's index it determines the text; batch size and processes do not."""
    prompt: str = ""
    """Text that every sequence begins with."""
    suffix: str = ""
    """Text that every sequence ends with."""
    batch_size: int = 32
    """Sequences drawn side by side."""
    out: Path | None = None
    """Write JSON lines here. If the file holds part of the same job, the rest is added."""
    overwrite: bool = False
    """Replace a file that holds another job."""
    trace: Path | None = None
    """Record every step of every sequence here, as JSON lines; costs a full forward a step."""
    json: bool = False
    """Print one JSON object about the run instead of the texts."""
    device: str = "cpu"
    """Where the network runs, such as cuda:0."""

    def __post_init__(self) -> None:
        if self.n < 1 or self.batch_size < 1 or self.seed < 0:
            raise ValueError("-n and --batch-size must be at least 1, and --seed at least 0")


def main(arguments: Sequence[str]) -> None:
    """Load the model, pin prompt and suffix, draw."""
    options = tyro.cli(SampleOptions, args=list(arguments), prog="dsl sample")
    from dsl.cli.drawing import Drawing, about, draw, read_sampler
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
    draw(
        job,
        about(job, ["dsl", "sample", *arguments], given),
        Drawing(
            options.n,
            options.batch_size,
            options.out,
            options.overwrite,
            options.trace,
            options.json,
        ),
    )
