"""A checkpoint directory: model.safetensors beside a flat config.json, on disk or on the hub.

huggingface_hub fetches and caches, safetensors reads and writes. The hub's own model mixin is not
used because it ignores unknown config keys and, by default, tensors that are missing or extra.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

CONFIG = "config.json"
WEIGHTS = "model.safetensors"


def save(directory: str | Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write a checkpoint directory; each file appears whole or not at all."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    contiguous = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    part = directory / f"{WEIGHTS}.part"
    save_file(contiguous, part, metadata={"format": "pt"})
    part.chmod(0o644)  # the library makes it private, and a shared or packaged model is not
    os.replace(part, directory / WEIGHTS)
    part = directory / f"{CONFIG}.part"
    part.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(part, directory / CONFIG)


def locate(source: str | Path, *, revision: str | None = None) -> Path:
    """Return the local directory of a checkpoint, fetching it if `source` is a hub id."""
    path = Path(source).expanduser()
    if path.is_dir():
        return path
    name = str(source)
    if path.exists() or name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise FileNotFoundError(f"no checkpoint directory at {name!r}")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        patterns = ["*.json", WEIGHTS]
        return Path(snapshot_download(name, revision=revision, allow_patterns=patterns))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise FileNotFoundError(
            f"there is no directory {name!r}, and as a hub id it could not be fetched: "
            f"{str(error).splitlines()[0]}"
        ) from error


def read_config(directory: Path) -> dict[str, Any]:
    """Read config.json."""
    path = directory / CONFIG
    if not path.is_file():
        within = [directory / "model", *sorted(directory.glob("checkpoints/step-*"), reverse=True)]
        nearest = next((inner for inner in within if (inner / CONFIG).is_file()), None)
        hint = f"; did you mean {nearest}?" if nearest else ""
        raise FileNotFoundError(f"{directory} is not a checkpoint: it has no {CONFIG}{hint}")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{path} must hold one JSON object, got {type(config).__name__}")
    return config


def load_tensors(directory: Path, model: nn.Module) -> None:
    """Fill a model from model.safetensors, refusing anything that does not fit exactly."""
    path = directory / WEIGHTS
    if not path.is_file():
        raise FileNotFoundError(f"{directory} is not a checkpoint: it has no {WEIGHTS}")
    try:
        with safe_open(path, framework="pt") as stored:
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    expected = model.state_dict()
    faults = [f"missing {name}" for name in expected if name not in tensors]
    faults += [f"unexpected {name}" for name in tensors if name not in expected]
    faults += [
        f"{name} has shape {tuple(tensors[name].shape)}, expected {tuple(tensor.shape)}"
        for name, tensor in expected.items()
        if name in tensors and tensors[name].shape != tensor.shape
    ]
    if faults:
        shown = "; ".join(faults[:5]) + (f"; and {len(faults) - 5} more" if faults[5:] else "")
        raise ValueError(f"{path} does not fit its {CONFIG}: {shown}")
    model.load_state_dict(tensors)
