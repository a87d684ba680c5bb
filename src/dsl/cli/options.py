"""Options that several verbs share; nothing here imports torch, so help stays quick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Protocol, TypeVar, runtime_checkable

import tyro

T = TypeVar("T")


def parse(kind: type[T], verb: str, arguments: Sequence[str]) -> T:
    """Read a verb's options. Wrong words are tyro's business, wrong values their `check`'s."""
    options = tyro.cli(
        kind,
        args=list(arguments),
        prog=f"dsl {verb}",
        config=(tyro.conf.PositionalMetavarFromFieldName, tyro.conf.DisallowNone),
    )
    if isinstance(options, Checked):
        options.check()
    return options


@runtime_checkable
class Checked(Protocol):
    """Options that not every value suits."""

    def check(self) -> None:
        """Raise a ValueError that says what was expected and what came."""


DEFAULT_MODEL = "text8-tiny"
"""What `dsl.loading` uses too; said again here because that module imports torch."""


@dataclass(frozen=True, kw_only=True)
class DrawingOptions:
    """How sequences are drawn, and where they go."""

    model: str = DEFAULT_MODEL
    """A bundled model, a checkpoint directory, a hub id, or an oracle such as oracle:cyclic-7."""
    n: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 1
    """How many sequences."""
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
        if self.n < 1 or self.batch_size < 1 or self.seed < 0:
            raise ValueError("-n and --batch-size must be at least 1, and --seed at least 0")
