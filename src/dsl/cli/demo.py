"""`dsl demo`: demonstrate the bundled models, and write a report with figures."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dsl._util.defaults import DEFAULT_MODEL
from dsl._util.validate import SEEDS, within
from dsl.cli.options import parse

if TYPE_CHECKING:
    from dsl.apps.correct import Reading
    from dsl.apps.demo.page import Walk
    from dsl.checkpoints import Model

PATHS = {
    "MDLM": "mdlm@64",
    "ReMDM-loop": "remdm-loop@64",
    "ROAR": "roar",
    "causal": "causal",
    "hybrid": "hybrid@16+32",
}
LONGEST = 160
"""Tokens of the generated text."""
GAPPED = "One day, a little girl named Lily found a [1] in the park. She was very happy."
WRITTEN = "The history of the United States of America began long before the last century."
DOUBTFUL = "The histery of the Unite_ Stetes of Amerlca began long bef_re the last centuty."
HESITATED = (12, 50)
"""Correct letters of the noisy text that have the low confidence of the wrong ones."""
SURE, UNSURE = 0.98, 0.5
"""Confidence of the correct letters, and of the wrong ones."""


@dataclass(frozen=True)
class Options:
    """Demonstrate the bundled models: correct a text, fill a gap, sample along five paths.

    Writes a report. Takes about a minute on two cores. `dsl reproduce toy` shows the theory on an
    exact toy instead.

    Example: dsl demo --out report.html
    """

    out: Path = Path("report.html")
    """Output file: one HTML page with embedded figures."""
    model: str = DEFAULT_MODEL
    """DSL model that fills the gap and samples: bundled, or a directory."""
    mender: str = "english-tiny"
    """Character-level DSL model that corrects the text."""
    seed: int = 0
    """Random seed."""

    def check(self) -> None:
        """Reject invalid values."""
        within(self, seed=SEEDS)


def main(arguments: Sequence[str]) -> None:
    """Correct, infill, sample, and write the report."""
    options = parse(Options, "demo", arguments)
    require_writable(options.out)
    from rich.console import Console
    from rich.padding import Padding

    from dsl._util.files import write_text
    from dsl.apps.correct import correct, section
    from dsl.apps.demo.page import page
    from dsl.checkpoints import load
    from dsl.core import Continuous
    from dsl.generation import infill

    console = Console()
    began = time.monotonic()
    model, mender = load(options.model), load(options.mender)
    for one in (model, mender):
        if not one.can_answer(Continuous):
            raise ValueError(f"the demo needs DSL models or oracles; {one.name} is neither")
    model.encode(GAPPED.replace("[1]", ""))  # fails early if the vocabulary lacks a character
    console.print(f"\n[bold]Correcting a noisy text[/] ({mender.name})")
    made = correct(doubtful(), mender, seed=options.seed)
    for name, text in (("read", DOUBTFUL), ("mended", made.text)):
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
    shown = f'{section(made, level=3)}<p class="soft">The page said: {WRITTEN}</p>'
    html = page(names, walks, fills, shown, options.seed)
    write_text(options.out, html)
    console.print(
        f"\n{time.monotonic() - began:.0f} s. Report with figures: {options.out.resolve()}\n",
        soft_wrap=True,
    )


def require_writable(path: Path) -> None:
    """Raise an error if the file cannot be written, before any work is done."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no directory {path.parent} for the report")
    there = path.resolve()  # a dangling link must survive the attempt
    try:
        new = not there.exists()
        there.open("ab").close()
    except OSError as error:
        raise type(error)(f"the report cannot be written to {path}: {error.strerror}") from error
    if new:
        there.unlink()


def doubtful() -> Reading:
    """Return the noisy text with the confidence of each letter; `_` is a gap."""
    from dsl.apps.correct import Reading, Symbol

    pairs = enumerate(zip(DOUBTFUL, WRITTEN, strict=True))
    symbols = [
        Symbol("", i, i + 1)
        if read == "_"
        else Symbol(read, i, i + 1, UNSURE if read != true or i in HESITATED else SURE)
        for i, (read, true) in pairs
    ]
    return Reading(DOUBTFUL, symbols)


def walk(model: Model, name: str, path: str, seed: int, console: object) -> Walk:
    """Sample one text along a path with a progress bar, and record its steps."""
    from rich.console import Console
    from rich.padding import Padding

    from dsl.apps.demo.page import Walk
    from dsl.cli.progress import progress
    from dsl.evaluation import likelihood
    from dsl.generation import SampleOptions, Trace, completion
    from dsl.generation import walk as walked

    assert isinstance(console, Console)
    length = min(model.length, LONGEST)
    request = completion(model, SampleOptions(sampler=path, length=length, seed=seed))
    with progress(None, name) as bar:
        began = time.monotonic()
        batch = next(request.batches())
        state = walked(batch)
        seconds = time.monotonic() - began
        (sample,) = batch.finish(state, seconds)
        trace = Trace(model.denoiser)  # a second run, so that tracing does not count as time
        walked(next(request.batches()), trace.follow, lambda step: bar.step(f"step {step}"))
    report = likelihood(model, [sample.text], budget=32, cutoff=20.0, seed=seed, only=("roar",))
    bits = report.bits_per_token("roar")
    console.print(
        f"  [bold]{name:<11}[/]{sample.nfe:4d} calls {seconds:5.1f} s  {bits.mean:.2f} bits/token"
    )
    console.print(Padding(sample.text, (0, 0, 0, 4)))
    return Walk(name, path, sample.text, sample.nfe, seconds, bits.mean, bits.stderr, trace.records)
