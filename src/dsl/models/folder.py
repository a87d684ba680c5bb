"""A checkpoint directory: model.safetensors beside a flat config.json, on disk or on the hub.

huggingface_hub fetches and caches, safetensors reads and writes. The hub's own model mixin is not
used because it ignores unknown config keys and, by default, tensors that are missing or extra.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from dsl._util.files import digest, parse_json, whole

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
TRAINING = "training.json"
"""The amount of training, used in comparisons."""
CHECKSUM = "weights_sha256"
"""The config key of the checksum of the weights."""


def save(directory: str | Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write a checkpoint directory; each file appears whole or not at all.

    Both files are complete before either is renamed; the config holds the weights' checksum.
    """
    directory = Path(directory)
    contiguous = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    with whole(directory / CONFIG) as beside, whole(directory / WEIGHTS) as part:
        save_file(contiguous, part, metadata={"format": "pt"})
        part.chmod(0o644)  # safetensors writes private files; models are shared
        record = {**config, CHECKSUM: digest(part)}
        beside.write_text(json.dumps(record, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def locate(source: str | Path, *, revision: str | None = None, weights: str = WEIGHTS) -> Path:
    """Return the local directory of a checkpoint, fetching it if `source` is a hub id.

    Args:
        source: The directory, or the hub id.
        revision: The revision on the hub.
        weights: The file pattern of the weights.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        return path
    name = str(source)
    if path.exists() or name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise FileNotFoundError(f"no checkpoint directory at {name!r}")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        patterns = ["*.json", weights]
        return Path(snapshot_download(name, revision=revision, allow_patterns=patterns))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise FileNotFoundError(
            f"there is no directory {name!r}, and as a hub id it could not be fetched: "
            f"{str(error).splitlines()[0]}"
        ) from error


def read_config(directory: Path) -> dict[str, Any]:
    """Read the model's description from config.json."""
    config = _read(directory)
    config.pop(CHECKSUM, None)
    return config


def _read(directory: Path) -> dict[str, Any]:
    path = directory / CONFIG
    if not path.is_file():
        raise FileNotFoundError(_absent(directory, CONFIG))
    config = parse_json(path.read_bytes(), str(path), unique=True)
    if not isinstance(config, dict):
        raise ValueError(f"{path} must hold one JSON object, got {type(config).__name__}")
    _require_possible(config, path)
    return config


def _absent(directory: Path, file: str) -> str:
    """Say that a directory is not a checkpoint, and where its training run has one."""
    run = directory.parent if directory.name == "model" else directory
    if (run / "model" / file).is_file():
        return f"{directory} is a training run: use its model, {run / 'model'}"
    steps = [path for path in sorted(run.glob("checkpoints/step-*")) if (path / file).is_file()]
    if steps:
        return f"{run} is a training run that has not finished: use {steps[-1]}"
    if (run / "recipe.yaml").is_file():
        return f"{run} is a training run that has not finished and has no checkpoint yet"
    return f"{directory} is not a checkpoint: it has no {file}"


def _require_possible(config: dict[str, Any], path: Path) -> None:
    """Raise an error before allocation if the weights file is too small for these sizes.

    A weight takes at least one byte.
    """
    inner = config.get("llama")
    sizes = {**config, **(inner if isinstance(inner, dict) else {})}
    for name, value in sizes.items():
        if type(value) is int and abs(value) >= 2**31:
            digits = len(str(abs(value)))
            raise ValueError(f"{path}: {name!r} must be smaller than 2^31, got {digits} digits")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{path}: {name!r} must be finite, got {value}")
    weights = path.with_name(WEIGHTS)
    size = weights.stat().st_size if weights.is_file() else 2**63
    room = max(size, 2**22)  # small sizes are harmless; later checks have better messages
    tables = (("vocab_size", "hidden_dim"), ("vocab_size", "codebook_dim"))
    signals = (("cond_dim", "cond_dim"), ("cond_dim", "hidden_dim", "n_blocks"))
    blocks = (("hidden_dim", "hidden_dim", "n_blocks"), ("hidden_dim", "mlp_dim", "n_blocks"))
    for names in (*tables, *signals, *blocks):
        product = [sizes.get(name) for name in names]
        if all(type(n) is int for n in product) and math.prod(product) > room:  # type: ignore[arg-type]
            listed = " x ".join(dict.fromkeys(names))
            raise ValueError(
                f"{weights} does not fit its {CONFIG}: {listed} would need more weights than the "
                f"{size:,} bytes can hold"
            )


def load_tensors(directory: Path, model: nn.Module, *, fresh: Sequence[str] = ()) -> None:
    """Fill a model from model.safetensors, with an error unless every tensor fits exactly.

    Args:
        directory: The checkpoint.
        model: A network of its shape.
        fresh: Name prefixes of tensors that may be missing; they keep their values.
    """
    path = directory / WEIGHTS
    if not path.is_file():
        raise FileNotFoundError(_absent(directory, WEIGHTS))
    own = model.state_dict()
    tensors = {n: t for n, t in own.items() if n.startswith(tuple(fresh))}
    try:
        with safe_open(path, framework="pt") as stored:
            names = list(stored.keys())
            shapes = {n: tuple(t.shape) for n, t in tensors.items()}
            shapes |= {name: tuple(stored.get_slice(name).get_shape()) for name in names}
            faults = _misfits(shapes, own)
            if not faults:  # now the tensors are no larger than the model's
                tensors |= {name: stored.get_tensor(name) for name in names}
                faults = _faults(tensors, own)
    except SafetensorError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    if faults:
        raise ValueError(f"{path} does not fit its {CONFIG}: {_listed(faults)}")
    if (wanted := _recorded(directory)) is not None and wanted != digest(path):
        raise ValueError(f"the weights in {path} have changed since they were written")
    model.load_state_dict(tensors)


def fill(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Fill a model from tensors, with an error unless every one fits exactly."""
    own = model.state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if faults := _misfits(shapes, own) or _faults(tensors, own):
        raise ValueError(_listed(faults))
    model.load_state_dict(tensors)


def checksum(directory: Path) -> str:
    """Return the checksum of a checkpoint's weights: the one that loading verified, if recorded."""
    return _recorded(directory) or digest(directory / WEIGHTS)


def _recorded(directory: Path) -> str | None:
    """Return the checksum in the config; older models have none."""
    found = _read(directory).get(CHECKSUM) if (directory / CONFIG).is_file() else None
    return found if isinstance(found, str) else None


def _listed(faults: Sequence[str]) -> str:
    return "; ".join(faults[:5]) + (f"; and {len(faults) - 5} more" if faults[5:] else "")


def _misfits(shapes: Mapping[str, tuple[int, ...]], expected: Mapping[str, Tensor]) -> list[str]:
    """List tensors that are missing, extra, or of a wrong shape."""
    faults = [f"missing {name}" for name in expected if name not in shapes]
    faults += [f"unexpected {ascii(name)[1:-1]}" for name in shapes if name not in expected]
    for name, tensor in expected.items():
        if name in shapes and shapes[name] != tuple(tensor.shape):
            faults.append(f"{name} has shape {shapes[name]}, expected {tuple(tensor.shape)}")
    return faults


def _faults(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> list[str]:
    """List tensors that are not finite, or of a wrong type."""
    faults = []
    for name, tensor in expected.items():
        found = tensors[name]
        if found.is_floating_point() != tensor.is_floating_point() or found.is_complex():
            faults.append(f"{name} is of type {found.dtype}, expected {tensor.dtype}")
        elif found.is_floating_point() and not found.float().isfinite().all():
            faults.append(f"{name} holds values that are not finite")
    return faults
