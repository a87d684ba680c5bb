"""What a training run says: a JSON line for every event, and a progress line for people."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dsl.cli.progress import Bar, progress
from dsl.extras import require
from dsl.figures.curves import NAMES
from dsl.files import reported
from dsl.scoring.validation import REPAIR
from dsl.training.utilisation import Utilisation

KINDS = ("validation", "utilisation")
"""Events that are not a step's."""


class Log:
    """The run's record: a JSON line for every event, and a progress line for people."""

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
        """Show how far the data are."""
        assert self.bar is not None
        self.bar.prepared(what, done, size)

    def say(self, text: str) -> None:
        """Tell the user something that happened."""
        assert self.bar is not None
        if self.visible:
            self.bar.console.print(text)

    def record(self, event: dict[str, Any]) -> None:
        """Write an event down and show it."""
        if not self.visible:
            return
        _append(self.path, json.dumps(event) + "\n")
        if self.wanted is not None:  # made now: before, the directory may not be the run's
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
        """Say what a validation found, of the best average and then of all."""
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
    """Add a line whole or not at all: after half a line, the next one could not be read."""
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
