"""Progress bar on standard error, with rate and remaining time.

All verbs use it. It writes nothing to a pipe.
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
    """Progress bar of one job."""

    progress: Progress
    task: TaskID
    tokens: int = 0
    began: float = field(default_factory=time.monotonic)

    @property
    def console(self) -> Console:
        """Console of the bar; text printed here appears above it."""
        return self.progress.console

    def step(self, note: str) -> None:
        """Show a note on the current unit of work."""
        self.progress.update(self.task, note=note)

    def advance(self, units: float | int, tokens: int = 0) -> None:
        """Count finished units and their tokens."""
        self.tokens += tokens
        rate = self.tokens / max(time.monotonic() - self.began, 1e-9)
        shown = f"{rate:,.0f} tokens/s" if self.tokens else ""
        self.progress.update(self.task, advance=units, rate=shown)

    def reach(self, done: int, total: int | None, what: str | None = None) -> None:
        """Set the completed amount and the total; a total of 0 means unknown."""
        self.progress.update(self.task, completed=done, total=total or None)
        if what is not None:
            self.progress.update(self.task, description=what)

    def prepared(self, what: str, done: int, size: int) -> None:
        """Progress callback for preparing a corpus or a judge."""
        self.reach(done, size, what)


@contextmanager
def progress(total: int | None, what: str, *, visible: bool = True) -> Iterator[Bar]:
    """Show a progress bar while the block runs.

    Args:
        total: Units of work; None if unknown.
        what: Description of the job.
        visible: Whether to show the bar, e.g. only in the first of several processes.
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
