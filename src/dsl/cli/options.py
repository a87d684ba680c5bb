"""Options that several verbs share; nothing here imports torch, so help stays quick."""

from __future__ import annotations

import inspect
import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Protocol, TypeVar, runtime_checkable

import tyro

from dsl.arguments import SEEDS, within
from dsl.files import require_place

T = TypeVar("T")


def parse(kind: type[T], verb: str, arguments: Sequence[str]) -> T:
    """Read a verb's options. Wrong words are tyro's business, wrong values their `check`'s."""
    options = tyro.cli(
        kind,
        args=list(arguments),
        prog=f"dsl {verb}",
        description=wrapped(inspect.getdoc(kind) or ""),
        config=(tyro.conf.PositionalMetavarFromFieldName, tyro.conf.DisallowNone),
    )
    if isinstance(options, Checked):
        options.check()
    return options


def wrapped(text: str) -> str:
    """Break paragraphs into lines that fit the terminal, and are not too long to be read.

    The lines are indented because tyro joins a line to the one before if it begins with a letter.
    """
    width = min(100, shutil.get_terminal_size().columns)
    filler = textwrap.TextWrapper(width, initial_indent="  ", subsequent_indent="  ")
    return "\n\n".join(filler.fill(" ".join(part.split())) for part in text.split("\n\n"))


@runtime_checkable
class Checked(Protocol):
    """Options that not every value suits."""

    def check(self) -> None:
        """Raise a ValueError that says what was expected and what came."""


DEFAULT_MODEL = "stories-tiny"
"""What `dsl.loading` uses too; said again here because that module imports torch."""


@dataclass(frozen=True, kw_only=True)
class DrawingOptions:
    """How sequences are drawn, and where they go."""

    model: str = DEFAULT_MODEL
    """A bundled model, a checkpoint directory, a hub id, or an oracle such as oracle:cyclic-7."""
    n: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 1
    """How many sequences."""
    temperature: float | None = None
    """Overrides the sampler's own; 0 takes the most likely tokens."""
    top_p: float | None = None
    """Overrides the sampler's own: the mass of the tokens that are drawn from."""
    guidance: float = 1.0
    """How often what is given counts: more than once makes texts fit it better and differ less, at
    twice the calls."""
    seed: int = 0
    """With a sequence's index it determines the text; batch size and processes do not."""
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

    def check(self) -> None:
        """Refuse values that no run can have."""
        within(self, n=(1, 10**7), batch_size=(1, 10**6), seed=SEEDS)
        within(self, temperature=(0, 10**6), top_p=(0, 1), guidance=(0, 10**3))
        if self.out is not None:
            require_place(self.out)
        if self.trace is not None and (self.trace.is_dir() or not self.trace.exists()):
            require_place(self.trace)  # what is neither may be a pipe
