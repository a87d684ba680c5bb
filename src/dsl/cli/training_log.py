"""What a training run says: a JSON line for every event, and a progress line for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from dsl.extras import require
from dsl.figures.curves import NAMES


class Log:
    """The run's record: a JSON line for every event, and a progress line for people."""

    def __init__(
        self,
        path: Path,
        console: Console,
        steps: int,
        *,
        visible: bool,
        tensorboard: Path | None = None,
    ) -> None:
        self.path, self.visible, self.console = path, visible, console
        self.board = _board(tensorboard) if tensorboard is not None and visible else None
        self.bar = Progress(
            TextColumn("step {task.completed}/{task.total}"),
            BarColumn(),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not visible or not console.is_terminal,
        )
        self.task = self.bar.add_task("", total=steps)
        self.validation = ""

    def __enter__(self) -> Log:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()
        if self.board is not None:
            self.board.close()

    def say(self, text: str) -> None:
        """Tell the user something that happened."""
        if self.visible:
            self.console.print(text)

    def record(self, event: dict[str, Any]) -> None:
        """Write an event down and show it."""
        if not self.visible:
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")
        if self.board is not None:
            group = "validation" if "validation" in event else "training"
            for name, value in event.get("validation", event).items():
                if name not in ("step", "eta") and not name.endswith("stderr"):
                    self.board.add_scalar(f"{group}/{name}", value, event["step"])
        if "validation" in event:
            bits = event["validation"]
            self.validation = f"validation {bits['loss']:.3f} bits"
            shown = [f"{name} {bits[key]:.4f}" for key, name in NAMES.items() if key in bits]
            self.say(f"step {event['step']}: validation {', '.join(shown)} bits per token")
        else:
            rate = f"{event['tokens_per_second']:,.0f} tokens/s"
            text = f"loss {event['loss']:.4f}  {rate}  {self.validation}"
            self.bar.update(self.task, completed=event["step"], description=text)


def _board(folder: Path) -> Any:
    require("tensorboard", extra="tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder))
