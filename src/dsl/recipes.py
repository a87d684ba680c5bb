"""Recipes: everything a run depends on, as YAML over frozen dataclasses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import cattrs
import yaml
from cattrs.strategies import configure_tagged_union

from dsl import plain
from dsl.baselines.ar import ArObjectiveConfig
from dsl.baselines.mdlm import MdlmObjectiveConfig
from dsl.baselines.vp import VpObjectiveConfig
from dsl.training.objective import ObjectiveConfig
from dsl.training.optimizer import OptimizerConfig
from dsl.training.trainer import TrainerConfig

Objective = ObjectiveConfig | MdlmObjectiveConfig | ArObjectiveConfig | VpObjectiveConfig
KINDS = {
    "dsl": ObjectiveConfig,
    "mdlm": MdlmObjectiveConfig,
    "ar": ArObjectiveConfig,
    "vp": VpObjectiveConfig,
}


@dataclass(frozen=True)
class DataConfig:
    """What is read."""

    corpus: str
    """A name that `dsl data` knows, or a file."""
    length: int
    """Tokens in a sequence."""
    windows: Literal["overlapping", "wrap"] = "overlapping"
    tokenizer: str = "characters"
    """characters (of the corpus), bytes, gpt2, mdlm-text8, or the path of a tokenizer.json."""
    validation: int = 64
    """Blocks of the fixed validation set."""


@dataclass(frozen=True)
class Recipe:
    """A run."""

    data: DataConfig
    model: dict[str, Any]
    """Fields of ModelConfig; the vocabulary and the length come from the data."""
    objective: Objective = field(default_factory=ObjectiveConfig)
    """dsl, mdlm, ar or vp; or a mapping with that as its `kind`."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    needs_init: bool = False
    """Whether the run makes sense only with given weights to begin with."""
    smoke: dict[str, Any] = field(default_factory=dict)
    """Changes that make the run as short as a test."""


COOKBOOK = Path(__file__).parent / "cookbook"


def find(name: str) -> Path:
    """Return the file of a recipe: a path, or the name of one that comes with the package."""
    for path in (Path(name).expanduser(), COOKBOOK / f"{name}.yaml"):
        if path.is_file():
            return path
    known = ", ".join(sorted(path.stem for path in COOKBOOK.glob("*.yaml")))
    raise FileNotFoundError(f"no recipe {name!r}; expected a YAML file or one of {known}")


def read(path: Path, changes: Sequence[str] = (), *, smoke: bool = False) -> Recipe:
    """Read a recipe and apply changes such as `trainer.steps=100`."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(data, dict):
        raise ValueError(f"{path} must hold a mapping with data, model, …")
    if smoke:
        _merge(data, data.get("smoke") or {})
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals:
            raise ValueError(f"a change is written key=value, got {change!r}")
        _assign(data, key.strip().split("."), yaml.safe_load(value))
    name = path.stem if path.parent == COOKBOOK else str(path)
    return from_data(data, f"{name} with {' '.join(changes)}" if changes else name)


def from_data(data: Mapping[str, Any], name: str) -> Recipe:
    """Build a recipe from plain data, refusing keys it does not have."""
    try:
        recipe: Recipe = _converter().structure(_spelled_out(data), Recipe)
    except cattrs.BaseValidationError as error:
        raise ValueError(f"{name}: {plain.explain(error)}") from error
    return recipe


def write(recipe: Recipe) -> str:
    """Return the resolved recipe as YAML."""
    text: str = yaml.safe_dump(_converter().unstructure(recipe), sort_keys=False)
    return text


def difference(before: Recipe, after: Recipe) -> list[str]:
    """List the fields in which two recipes differ, with both values."""
    one, other = (_flat(_converter().unstructure(recipe)) for recipe in (before, after))
    return [
        f"{key}: {one.get(key, 'none')} there, {other.get(key, 'none')} here"
        for key in sorted(one.keys() | other.keys())
        if one.get(key) != other.get(key) and not key.startswith("smoke")
    ]


def _flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in data.items():
        flat |= (
            _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
        )
    return flat


def _spelled_out(data: Mapping[str, Any]) -> dict[str, Any]:
    """Let `objective: mdlm` stand for the mapping it means."""
    whole = dict(data)
    objective = whole.get("objective")
    if isinstance(objective, str):
        if objective not in KINDS:
            raise ValueError(f"objective must be one of {', '.join(KINDS)}; got {objective!r}")
        whole["objective"] = {"kind": objective}
    elif isinstance(objective, Mapping) and objective.get("kind", "dsl") not in KINDS:
        raise ValueError(f"objective.kind must be one of {', '.join(KINDS)}")
    return whole


@cache
def _converter() -> cattrs.Converter:
    converter = plain.converter()
    names = {kind: name for name, kind in KINDS.items()}
    configure_tagged_union(
        Objective,
        converter,
        tag_name="kind",
        tag_generator=names.__getitem__,
        default=ObjectiveConfig,
    )
    return converter


def _merge(data: dict[str, Any], changes: Mapping[str, Any]) -> None:
    for key, value in changes.items():
        if isinstance(value, Mapping) and isinstance(data.get(key), dict):
            _merge(data[key], value)
        else:
            data[key] = value


def _assign(data: dict[str, Any], keys: list[str], value: Any) -> None:
    *path, last = keys
    for key in path:
        data = data.setdefault(key, {})
        if not isinstance(data, dict):
            raise ValueError(f"{'.'.join(keys)} is not a field of the recipe")
    data[last] = value
