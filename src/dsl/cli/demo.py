"""`dsl demo`: a text mended, a gap filled, stories along five paths, and a page of all."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dsl.arguments import SEEDS, within
from dsl.cli.options import DEFAULT_MODEL, parse

if TYPE_CHECKING:
    from dsl.figures.report import Walk
    from dsl.loading import Model

PATHS = {
    "MDLM": "mdlm@64",
    "ReMDM-loop": "remdm-loop@64",
    "ROAR": "roar",
    "causal": "causal",
    "hybrid": "hybrid@16+32",
}
LONGEST = 160
"""Tokens of a text that is written."""
GAPPED = "One day, a little girl named Lily found a [1] in the park. She was very happy."
WRITTEN = "The history of the United States of America began long before the last century."
DOUBTFUL = "The histery of the Unite_ Stetes of Amerlca began long bef_re the last centuty."
HESITATED = (12, 50)
"""Letters that the reader of the doubtful text got right, though no surer than of its mistakes."""
SURE, UNSURE = 0.98, 0.5
"""How sure the reader is of the letters it got right, and of its mistakes."""


@dataclass(frozen=True)
class DemoOptions:
    """See the bundled models work: a text mended, a gap filled, five paths, and a report.

    Takes about a minute on two cores. `dsl toy` shows the theory on an exact toy instead.
    """

    out: Path = Path("report.html")
    """Where the report is written: one page with its pictures inside."""
    model: str = DEFAULT_MODEL
    """Who fills the gap and writes: a DSL model, bundled or in a directory."""
    mender: str = "english-tiny"
    """Who mends: a DSL model of characters."""
    seed: int = 0
    """Where the random numbers start."""

    def check(self) -> None:
        """Refuse values that no run can have."""
        within(self, seed=SEEDS)


def main(arguments: Sequence[str]) -> None:
    """Mend, fill, walk, write the page, and say where it is."""
    options = parse(DemoOptions, "demo", arguments)
    require_writable(options.out)
    from rich.console import Console
    from rich.padding import Padding

    from dsl.correction.mending import mend
    from dsl.figures.report import page
    from dsl.files import write_text
    from dsl.generation import infill
    from dsl.loading import load

    console = Console()
    began = time.monotonic()
    model, mender = load(options.model), load(options.mender)
    for one in (model, mender):
        if "states" not in one.answers:
            raise ValueError(
                f"the demonstration needs DSL models or oracles; {one.name} is neither"
            )
    model.encode(GAPPED.replace("[1]", ""))  # a model that cannot say this is refused here
    mender.encode(DOUBTFUL.replace("_", ""))
    console.print(f"\n[bold]Mending a doubtful text[/] ({mender.name})")
    mended = mend(DOUBTFUL, confidences(), mender, seed=options.seed)
    for name, text in (("read", mended.read), ("mended", mended.repaired)):
        console.print(f"  {name:<8}{text}", soft_wrap=True)
    console.print(f"\n[bold]Filling a gap[/] ({model.name})")
    fills = [
        (GAPPED, s.text) for s in infill(GAPPED, model, n=3, sampler="roar", seed=options.seed)
    ]
    for _, text in fills:
        console.print(Padding(text, (0, 0, 0, 2)))
    console.print("\n[bold]A story: one network, one seed, five paths through SNR space[/]")
    walks = [walk(model, name, path, options.seed, console) for name, path in PATHS.items()]
    names = f"{model.name} and {mender.name}"
    html = page(names, walks, fills, mended, options.seed, WRITTEN)
    write_text(options.out, html)
    console.print(
        f"\n{time.monotonic() - began:.0f} s. The report, with pictures: {options.out.resolve()}\n",
        soft_wrap=True,
    )


def require_writable(path: Path) -> None:
    """Refuse a file that cannot be written, before any work is done for it."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no directory {path.parent} for the report")
    there = path.resolve()  # a link that leads nowhere yet must survive the attempt
    try:
        new = not there.exists()
        there.open("ab").close()
    except OSError as error:
        raise type(error)(f"the report cannot be written to {path}: {error.strerror}") from error
    if new:
        there.unlink()


def confidences() -> list[float]:
    """Return how sure the reader is of each letter of the doubtful text."""
    return [
        UNSURE if read != true or i in HESITATED else SURE
        for i, (read, true) in enumerate(zip(DOUBTFUL, WRITTEN, strict=True))
    ]


def walk(model: Model, name: str, path: str, seed: int, console: object) -> Walk:
    """Write one text along a path, showing how far it is, and record its steps."""
    from rich.console import Console
    from rich.padding import Padding

    from dsl.cli.progress import progress
    from dsl.diagnostics.trace import Trace
    from dsl.figures.report import Walk
    from dsl.jobs import Job, Start, run
    from dsl.presets import sampler
    from dsl.scoring.texts import likelihood

    assert isinstance(console, Console)
    job = Job(model, sampler(path), Start.blank(min(model.length, LONGEST)), seed)
    with progress(None, name) as bar:
        began = time.monotonic()
        sample = job.finish(batch := job.batch([0]), run(batch), time.monotonic() - began)[0]
        seconds = time.monotonic() - began
        trace = Trace(model.denoiser)  # a second walk, so that measuring does not count as time
        again = job.batch([0])
        run(again, trace.follow, lambda step: bar.step(f"step {step}"))
    report = likelihood(model, [sample.text], budget=32, cutoff=20.0, seed=seed, only=("roar",))
    bits = report.bits_per_token("roar")
    console.print(
        f"  [bold]{name:<11}[/]{sample.nfe:4d} calls {seconds:5.1f} s  {bits.mean:.2f} bits/token"
    )
    console.print(Padding(sample.text, (0, 0, 0, 4)))
    return Walk(name, path, sample.text, sample.nfe, seconds, bits.mean, bits.stderr, trace.records)
