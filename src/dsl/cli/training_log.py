"""Training log: a JSON line per event, and a progress bar."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dsl._util.extras import require
from dsl._util.files import reported
from dsl.apps.reproduce.curves import NAMES
from dsl.cli.progress import Bar, progress
from dsl.evaluation import REPAIR
from dsl.training import Utilisation

KINDS = ("validation", "utilisation")
"""Events that do not belong to a step."""


class Log:
    """Training log: a JSON line per event, and a progress bar."""

    def __init__(self, path: Path, steps: int, *, visible: bool, board: Path | None = None) -> None:
        self.path, self.steps, self.visible = path, steps, visible
        self.wanted = board if visible else None
        self.board: Any = None
        self.validation = ""
        self.shown = ExitStack()
        self.bar: Bar | None = None

    def __enter__(self) -> Log:
        line = progress(None, "preparing the data", visible=self.visible)
        self.bar = self.shown.enter_context(line)
        return self

    def __exit__(self, *_: object) -> None:
        self.shown.close()
        if self.board is not None:
            self.board.close()

    def prepared(self, what: str, done: int, size: int) -> None:
        """Progress callback for preparing the data."""
        assert self.bar is not None
        self.bar.prepared(what, done, size)

    def say(self, text: str) -> None:
        """Print a message above the bar."""
        assert self.bar is not None
        if self.visible:
            self.bar.console.print(text)

    def record(self, event: dict[str, Any]) -> None:
        """Append an event to the log and show it."""
        if not self.visible:
            return
        _append(self.path, json.dumps(event) + "\n")
        if self.wanted is not None:  # created late: earlier, the directory may belong to no run
            self.board = self.board or _board(self.wanted)
            group = next((kind for kind in KINDS if kind in event), "training")
            for name, value in event.get(group, event).items():
                plain = isinstance(value, int | float) and not name.endswith("stderr")
                if plain and name not in ("step", "eta"):
                    self.board.add_scalar(f"{group}/{name}", value, event["step"])
        if "validation" in event:
            self._validated(event)
        elif "utilisation" in event:
            self.say(Utilisation(**event["utilisation"]).line)
        elif self.bar is not None:
            self.bar.reach(event["step"], self.steps, "step")
            rate = f"{event['tokens_per_second']:,.0f} tokens/s"
            self.bar.step(f"loss {event['loss']:.4f}  {rate}  {self.validation}")

    def _validated(self, event: dict[str, Any]) -> None:
        """Print the validation results of the best EMA, then of all."""
        bits = event["validation"]
        self.validation = f"validation {bits['loss']:.3f} bits"
        measured = [name for name in bits if f"{name}_stderr" in bits]
        shares = [name for name in measured if name.startswith(REPAIR)]
        shown = [f"{NAMES.get(n, n)} {bits[n]:.4f}" for n in measured if n not in shares]
        self.say(f"step {event['step']}: validation {', '.join(shown)} bits per token")
        if shares:
            put_right = [f"{n.removeprefix(REPAIR)} {bits[n]:.3f}" for n in shares]
            self.say(f"step {event['step']}: repair {', '.join(put_right)}".replace("_", " "))
        if "averages" in event:
            each = (f"{decay}: {found['loss']:.4f}" for decay, found in event["averages"].items())
            self.say(f"step {event['step']}: ema {event['ema']} is the best of {', '.join(each)}")


def _append(path: Path, line: str) -> None:
    """Append a line atomically: a partial line would make the next one unreadable."""
    rest = line.encode()
    with reported(path), path.open("ab", buffering=0) as file:
        before = file.tell()
        try:
            while rest:
                rest = rest[file.write(rest) :]
        except OSError:
            file.truncate(before)
            raise


def _board(folder: Path) -> Any:
    require("tensorboard", extra="tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder))
