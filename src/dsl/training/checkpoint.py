"""Checkpoints of a run: directories that are written atomically, with a checksum of every file.

A run resumes from the newest intact checkpoint; damaged ones are skipped with a warning.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from dsl._util.files import digest, parse_json, sweep, whole

MANIFEST = "manifest.json"
TRAINING = "training.safetensors"
MISSING = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
"""Errors of a checkpoint without all of its files. Other errors say nothing about the files."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint to resume from."""

    step: int
    path: Path
    about: dict[str, Any]

    def tensors(self) -> dict[str, Tensor]:
        """Read the state of model, average and optimizer."""
        return load_file(self.path / TRAINING)


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of a run directory."""

    folder: Path
    keep: int = 2
    """How many of the newest are kept, in addition to the best."""

    def save(
        self,
        step: int,
        tensors: Mapping[str, Tensor],
        about: dict[str, Any],
        write_model: Callable[[Path], None],
    ) -> Checkpoint:
        """Write a checkpoint and delete old ones."""
        final = self.folder / f"step-{step:08d}"
        sweep(self.folder)
        with whole(final, f"the checkpoint of step {step}") as part:
            part.mkdir()
            save_file(
                {name: t.detach().contiguous() for name, t in tensors.items()}, part / TRAINING
            )
            write_model(part)
            sums = {path.name: digest(path) for path in sorted(part.iterdir())}
            record = {"step": step, "about": about, "sha256": sums}
            (part / MANIFEST).write_text(json.dumps(record, indent=2), encoding="utf-8")
        self._prune()
        return Checkpoint(step, final, about)

    def newest(self, tell: Callable[[str], None]) -> Checkpoint | None:
        """Return the newest intact checkpoint, with a message for every damaged one."""
        for path in sorted(self.folder.glob("step-*"), reverse=True):
            fault = self.fault(path)
            if fault is None:
                record = _manifest(path)
                return Checkpoint(record["step"], path, record["about"])
            tell(f"{path.name} is damaged ({fault}); using the previous one")
        return None

    @staticmethod
    def fault(path: Path) -> str | None:
        """Describe the damage of a checkpoint; None if it is intact.

        Raises:
            OSError: if a file is there but cannot be read; that is a fault of the machine.
        """
        try:
            for name, written in _manifest(path)["sha256"].items():
                if digest(path / name) != written:
                    return f"{name} has changed"
        except (*MISSING, ValueError) as error:
            return str(error)
        except OSError as error:
            raise type(error)(
                f"{path} cannot be read ({error.strerror}); it may be intact, so the run does not "
                "go back to an older checkpoint"
            ) from error
        return None

    def _prune(self) -> None:
        paths = sorted(self.folder.glob("step-*"))
        best = self.best()
        for path in paths[: -self.keep]:
            if path != best:
                shutil.rmtree(path)

    def best(self) -> Path | None:
        """Return the checkpoint with the lowest validation loss, if any has one."""
        scored = []
        for path in self.folder.glob("step-*"):
            try:
                loss = _manifest(path)["about"].get("validation", {}).get("loss")
            except (*MISSING, ValueError):
                continue  # damaged
            if loss is not None:
                scored.append((loss, path))
        return min(scored)[1] if scored else None


def flatten_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimizer's state as named tensors."""
    state = optimizer.state_dict()["state"]
    return {
        f"optimizer.{index}.{key}": value if isinstance(value, Tensor) else torch.tensor(value)
        for index, entry in state.items()
        for key, value in entry.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Load a state written by `flatten_optimizer`."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            _, index, key = name.split(".", 2)
            state.setdefault(int(index), {})[key] = tensor
    whole = optimizer.state_dict()
    whole["state"] = state
    optimizer.load_state_dict(whole)


def _manifest(path: Path) -> dict[str, Any]:
    """Read and check the manifest of a checkpoint."""
    where = path / MANIFEST
    record = parse_json(where.read_bytes(), str(where))
    kinds = {"step": int, "about": dict, "sha256": dict}
    if not isinstance(record, dict) or any(
        not isinstance(record.get(name), kind) for name, kind in kinds.items()
    ):
        raise ValueError(f"{where} must have the keys {', '.join(kinds)}")
    if TRAINING not in record["sha256"]:
        raise ValueError(f"{where} has no checksum of {TRAINING}")
    return record
