"""`dsl demo`: the bundled model along five paths, a gap filled, a text mended, and a page of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dsl.cli.options import DEFAULT_MODEL, parse

if TYPE_CHECKING:
    from dsl.figures.report import Repair, Walk
    from dsl.loading import Model

PATHS = {
    "MDLM": "mdlm@64",
    "ReMDM-loop": "remdm-loop@64",
    "ROAR": "roar",
    "causal": "causal",
    "hybrid": "hybrid@16+32",
}
GAPPED = "the capital of [12] is london"
WRITTEN = "the history of the united states of america began in the eighteenth century"
DOUBTFUL = "the histery of the uni___ stetes of amerlca began in the eigh_____h centuty"
HESITATED = (12, 50)
"""Letters that the reader of the doubtful text got right, though no surer than of its mistakes."""


@dataclass(frozen=True)
class DemoOptions:
    """See the bundled model work: five paths from one seed, an infill, a repair, and a report.

    Takes about a minute on two cores. `dsl toy` shows the theory on an exact toy instead.
    """

    out: Path = Path("report.html")
    """Where the report is written: one page with its pictures inside."""
    model: str = DEFAULT_MODEL
    """A DSL model, bundled or in a directory; it must know lower-case letters and spaces."""
    seed: int = 0
    """Where the random numbers start."""

    def check(self) -> None:
        """Refuse values that no run can have."""
        if self.seed < 0:
            raise ValueError(f"--seed must be at least 0, got {self.seed}")


def main(arguments: Sequence[str]) -> None:
    """Walk, fill, mend, write the page, and say where it is."""
    options = parse(DemoOptions, "demo", arguments)
    from rich.console import Console

    from dsl.figures.report import page
    from dsl.generation import infill
    from dsl.loading import load
    from dsl.scoring import continuous

    if not options.out.parent.is_dir():
        raise FileNotFoundError(f"there is no directory {options.out.parent} for the report")
    console = Console()
    began = time.monotonic()
    model = load(options.model)
    if not continuous(model.denoiser):
        raise ValueError(
            f"the demonstration needs a DSL model or an oracle; {model.name} is neither"
        )
    for text in (GAPPED.replace("[12]", ""), DOUBTFUL.replace("_", "")):
        model.encode(text)  # a model that cannot say this is refused here
    console.print(f"\n[bold]{model.name}[/]: one network, one seed, five paths through SNR space\n")
    walks = [walk(model, name, path, options.seed, console) for name, path in PATHS.items()]
    console.print("\n[bold]Filling a gap[/]")
    fills = [
        (GAPPED, s.text) for s in infill(GAPPED, model, n=3, sampler="roar", seed=options.seed)
    ]
    for _, text in fills:
        console.print(f"  {text}")
    console.print("\n[bold]Mending a doubtful text[/]")
    mended = repair(model, options.seed)
    console.print(f"  read    {mended.read}\n  mended  {mended.repaired}")
    options.out.write_text(page(model.name, walks, fills, mended, options.seed), encoding="utf-8")
    console.print(
        f"\n{time.monotonic() - began:.0f} s. The report, with pictures: {options.out.resolve()}\n",
        soft_wrap=True,
    )


def walk(model: Model, name: str, path: str, seed: int, console: object) -> Walk:
    """Write one text along a path, showing how far it is, and record its steps."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.progress import BarColumn, Progress, TextColumn

    from dsl.diagnostics.trace import Trace
    from dsl.figures.report import Walk
    from dsl.generation import Job, Start, run
    from dsl.presets import sampler
    from dsl.scoring import likelihood

    assert isinstance(console, Console)
    job = Job(model, sampler(path), Start.blank(model.length), seed)
    with Progress(
        TextColumn("  {task.description}"), BarColumn(), console=console, transient=True
    ) as bar:
        task = bar.add_task(name, total=None)
        began = time.monotonic()
        sample = job.finish(batch := job.batch([0]), run(batch), time.monotonic() - began)[0]
        seconds = time.monotonic() - began
        trace = Trace(model.denoiser)  # a second walk, so that measuring does not count as time
        again = job.batch([0])
        run(again, trace.follow, lambda step: bar.update(task, completed=step))
    report = likelihood(model, [sample.text], budget=32, cutoff=20.0, seed=seed, only=("roar",))
    bits = report.bits_per_token("roar")
    console.print(
        f"  [bold]{name:<11}[/]{sample.nfe:4d} calls {seconds:5.1f} s  {bits.mean:.2f} bits/char"
    )
    console.print(Padding(sample.text, (0, 0, 0, 4)))
    return Walk(name, path, sample.text, sample.nfe, seconds, bits.mean, bits.stderr, trace.records)


def repair(model: Model, seed: int) -> Repair:
    """Mend the doubtful text: gaps are unknown, every letter has its confidence."""
    from dsl.diagnostics.leave_one_out import leave_one_out
    from dsl.evidence import Confident, Observation, Unknown
    from dsl.figures.report import Repair
    from dsl.generation import Job, Start
    from dsl.presets import sampler
    from dsl.sampling.sampler import last
    from dsl.streams import Streams

    sure = [
        0.0 if read == "_" else 0.5 if read != true or i in HESITATED else 0.98
        for i, (read, true) in enumerate(zip(DOUBTFUL, WRITTEN, strict=True))
    ]
    hints: list[Observation] = [
        Unknown() if p == 0 else Confident(model.encode(c)[0], p)
        for c, p in zip(DOUBTFUL, sure, strict=True)
    ]
    job = Job(model, sampler("roar:temperature=0"), Start.known(model, [hints]), seed)
    batch = job.batch([0])
    state = last(job.sampler, batch.denoiser, batch.start, generator=Streams.derive(seed, [0]))
    text = model.decode(state.tokens[0].tolist())
    return Repair(DOUBTFUL, sure, text, leave_one_out(batch.denoiser, state.tokens)[0].tolist())
