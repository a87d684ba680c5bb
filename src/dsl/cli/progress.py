"""The progress line on standard error: what is done, how fast, and how long it will take.

Every verb shows this one. It leaves nothing behind in a pipe.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)


@dataclass
class Bar:
    """The line of one job."""

    progress: Progress
    task: TaskID
    tokens: int = 0
    began: float = field(default_factory=time.monotonic)

    @property
    def console(self) -> Console:
        """Where the line is; what is printed here appears above it."""
        return self.progress.console

    def step(self, note: str) -> None:
        """Say what is going on inside the unit that is being worked on."""
        self.progress.update(self.task, note=note)

    def advance(self, units: int, tokens: int = 0) -> None:
        """Count finished units and their tokens."""
        self.tokens += tokens
        rate = self.tokens / max(time.monotonic() - self.began, 1e-9)
        shown = f"{rate:,.0f} tokens/s" if self.tokens else ""
        self.progress.update(self.task, advance=units, rate=shown)

    def reach(self, done: int, total: int | None, what: str | None = None) -> None:
        """Say how much of something is done, of how much; a total of 0 is not known."""
        self.progress.update(self.task, completed=done, total=total or None)
        if what is not None:
            self.progress.update(self.task, description=what)

    def prepared(self, what: str, done: int, size: int) -> None:
        """Take what a corpus or a judge tells while it is being prepared."""
        self.reach(done, size, what)


@contextmanager
def progress(total: int | None, what: str, *, visible: bool = True) -> Iterator[Bar]:
    """Show a progress line while the block runs.

    Args:
        total: Units of work; None while it is not known.
        what: What is being done.
        visible: Whether there is anything to show, as in the first of several processes.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    hidden = not visible or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as shown:
        yield Bar(shown, shown.add_task(what, total=total, note="", rate=""))
