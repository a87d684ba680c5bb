"""Options shared by several verbs; torch is not imported here, so --help stays fast."""

from __future__ import annotations

import inspect
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

import tyro

from dsl._util.defaults import DEFAULT_MODEL
from dsl._util.files import require_place
from dsl._util.registry import Registry

T = TypeVar("T")


def parse(kind: type[T], verb: str, arguments: Sequence[str]) -> T:
    """Parse a verb's options. tyro reports syntax errors, `check` reports invalid values."""
    options = tyro.cli(
        kind,
        args=list(arguments),
        prog=f"dsl {verb}",
        description=wrapped("\n\n".join([inspect.getdoc(kind) or "", *_choices(kind)])),
        config=(tyro.conf.PositionalMetavarFromFieldName, tyro.conf.DisallowNone),
    )
    if isinstance(options, Checked):
        options.check()
    return options


def _choices(kind: type) -> list[str]:
    """List the names that a verb's options accept: those of an entry-point group, or others."""
    found: dict[str, str | Iterable[str]] = getattr(kind, "choices", {})
    return [
        f"{what}: {', '.join(Registry(names, what) if isinstance(names, str) else names)}."
        for what, names in found.items()
    ]


def wrapped(text: str) -> str:
    """Wrap paragraphs to the terminal width, up to a readable maximum.

    Lines are indented because tyro joins a line that begins with a letter to the previous one.
    """
    width = min(100, shutil.get_terminal_size().columns)
    filler = textwrap.TextWrapper(
        width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
    )
    return "\n\n".join(filler.fill(" ".join(part.split())) for part in text.split("\n\n"))


@runtime_checkable
class Checked(Protocol):
    """Options with validation."""

    def check(self) -> None:
        """Raise a ValueError that states the expected and the given value."""


@dataclass(frozen=True, kw_only=True)
class CorpusOptions:
    """A model, a corpus, and how to measure one on the other."""

    model: tyro.conf.Positional[str]
    """Bundled model such as text8-tiny, checkpoint directory, hub id, or oracle."""
    corpus: tyro.conf.Positional[str]
    """Text file, .jsonl file with a "text" field per line, or corpus name (see `dsl data`)."""
    seed: int = 0
    """Random seed."""
    json: bool = False
    """Print JSON instead of a table."""
    device: str = "cpu"
    """Device of the network, such as cuda:0."""
    cache: Path | None = None
    """Cache directory for corpora."""


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Model to sample from, and where to write its texts."""

    model: str = DEFAULT_MODEL
    """Bundled model, checkpoint directory, hub id, or oracle such as oracle:cyclic-7."""
    device: str = "cpu"
    """Device of the network, such as cuda:0."""
    out: Path | None = None
    """Output file (JSON lines). A file with part of the same request is completed."""
    overwrite: bool = False
    """Overwrite an output file of a different request."""
    trace: Path | None = None
    """Record every step of every sequence in this file (JSON lines); costs one full forward pass
    per step."""
    json: bool = False
    """Print one JSON object about the run instead of the texts."""

    def check_output(self) -> None:
        """Reject output paths that cannot be written."""
        if self.out is not None:
            require_place(self.out)
        if self.trace is not None and (self.trace.is_dir() or not self.trace.exists()):
            require_place(self.trace)  # other paths may be pipes
