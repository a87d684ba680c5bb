"""A progress line on standard error: what is done, how fast, and how long it will take."""

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

    def step(self, note: str) -> None:
        """Say what is going on inside the unit that is being worked on."""
        self.progress.update(self.task, note=note)

    def advance(self, units: int, tokens: int) -> None:
        """Count finished units and their tokens."""
        self.tokens += tokens
        rate = self.tokens / max(time.monotonic() - self.began, 1e-9)
        self.progress.update(self.task, advance=units, rate=f"{rate:,.0f} tokens/s")


@contextmanager
def progress(total: int, what: str, *, visible: bool = True) -> Iterator[Bar]:
    """Show a progress line while the block runs; it leaves nothing behind in a pipe."""
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
