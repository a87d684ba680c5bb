"""The precision of a run's matrix products: set by the recipe, or the faster one on this machine.

A measured choice is stored with the run, so a resumed run keeps its precision.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from dsl._util import files
from dsl.training.rehearsal import Rehearsal

RECORD = "precision.json"
KNOWN = ("float32", "bf16", "fp16")
Precision = Literal["float32", "bf16", "fp16", "auto"]

ROUNDS = 3
LONGEST = 10.0
"""Seconds after which measuring stops."""
GAIN = 0.95
"""bfloat16 is less exact, so it must save at least 5% of the time."""
TRIAL = Path(__file__).with_name("bf16_trial.py")
PATIENCE = 300.0
"""Timeout of a trial in seconds."""
MOST_ROWS = 256


@dataclass(frozen=True)
class Chosen:
    """A precision, and a message for the user if there is one."""

    precision: str
    said: str | None = None


def settle(wanted: Precision, folder: Path, rehearsal: Rehearsal) -> Chosen:
    """Return the precision of a run, and store it with the run if it was measured.

    Raises:
        ValueError: if the recipe sets bf16 and this machine cannot compute it.
    """
    path = folder / RECORD
    before = _read(path)
    if wanted == "auto" and before is None:
        return _measured(path, rehearsal)
    asked = before if wanted == "auto" or before is None else wanted
    asked = wanted if asked is None else asked
    lacking = fault(rehearsal) if asked == "bf16" else None
    if lacking is not None and wanted == "bf16":
        raise ValueError(f"trainer.precision is bf16, but {lacking}; expected float32 or auto")
    chosen = "float32" if lacking is not None else asked
    if before in (None, chosen):
        return Chosen(chosen)
    _write(path, {"precision": chosen, "before": before})
    why = lacking or "the recipe was changed"
    return Chosen(
        chosen,
        f"precision changes from {before} to {chosen} ({why}); the run is no longer bit-identical",
    )


def fault(rehearsal: Rehearsal) -> str | None:
    """Return why this run cannot use bfloat16, or None if it can.

    A CPU is tested in a child process, which may crash.
    """
    device = rehearsal.tokens.device
    if device.type == "cuda":
        supported = torch.cuda.is_bf16_supported(including_emulation=False)
        return None if supported else "this GPU has no bfloat16"
    rows = min(MOST_ROWS, rehearsal.tokens.numel())
    asked = json.dumps({"rows": rows, "products": rehearsal.products()})
    job = [sys.executable, "-P", str(TRIAL), asked]
    try:
        status = subprocess.run(job, capture_output=True, timeout=PATIENCE).returncode
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"a trial of it did not finish ({type(error).__name__})"
    if status < 0:
        return f"a trial of it crashed on this machine ({_signal(-status)})"
    return None if status == 0 else "a trial of it gave wrong results on this machine"


def measure(rehearsal: Rehearsal) -> dict[str, float]:
    """Return the seconds of a step in float32 and bfloat16: the minimum of alternating rounds."""
    seconds = {"float32": float("inf"), "bf16": float("inf")}
    began = time.perf_counter()
    for number in range(1 + ROUNDS):
        for name in seconds:
            start = time.perf_counter()
            rehearsal.step(bf16=name == "bf16")
            if number > 0:  # the first round warms up
                seconds[name] = min(seconds[name], time.perf_counter() - start)
        if number > 0 and time.perf_counter() - began > LONGEST:
            break
    return seconds


def faster(seconds: dict[str, float]) -> str:
    """Return bf16 if it saves enough time, else float32."""
    return "bf16" if seconds["bf16"] < GAIN * seconds["float32"] else "float32"


def _measured(path: Path, rehearsal: Rehearsal) -> Chosen:
    """Measure both precisions, and store the choice."""
    lacking = fault(rehearsal)
    if lacking is not None:
        _write(path, {"precision": "float32", "why": lacking})
        return Chosen("float32", f"precision: float32, because {lacking}")
    if rehearsal.tokens.device.type == "cuda":
        _write(path, {"precision": "bf16", "why": "this GPU has it"})
        return Chosen("bf16", "precision: bf16, which this GPU has")
    seconds = measure(rehearsal)
    chosen = faster(seconds)
    _write(path, {"precision": chosen, "why": "measured", "seconds": seconds})
    ratio = seconds["float32"] / seconds["bf16"]
    return Chosen(chosen, f"precision: {chosen}; a step in bf16 is {ratio:.2f} times as fast here")


def _read(path: Path) -> str | None:
    if not path.exists():
        return None
    found = files.parse_json(path.read_bytes(), str(path))
    chosen = found.get("precision") if isinstance(found, dict) else None
    if chosen not in KNOWN:
        raise ValueError(f"{path}: precision must be one of {', '.join(KNOWN)}, got {chosen!r}")
    return str(chosen)


def _write(path: Path, record: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_text(path, json.dumps(record, indent=2))


def _signal(number: int) -> str:
    known = {each.value: each.name for each in signal.Signals}
    return known.get(number, f"signal {number}")
