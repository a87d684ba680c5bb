"""Recipes: the full description of a run, as YAML over frozen dataclasses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import cattrs
import yaml

from dsl._util import config as strict
from dsl._util.defaults import RECIPES, recipe_names
from dsl.data.bpe import size_of
from dsl.data.documents import Kind
from dsl.families.base import Family
from dsl.families.dsl import DSL
from dsl.families.registry import FAMILIES
from dsl.training.optimizer import OptimizerConfig
from dsl.training.trainer import TrainerConfig


@dataclass(frozen=True)
class ObjectiveChoice:
    """A family and the options of its objective."""

    family: Family
    options: Any


@dataclass(frozen=True)
class DataConfig:
    """The training text."""

    corpus: str
    """A corpus of `dsl data`, or a file."""
    length: int
    """Tokens in a sequence."""
    windows: Kind = "overlapping"
    """Windows at any offset (overlapping), consecutive blocks (wrap), or whole documents."""
    share: bool = False
    """Whether consecutive short documents share a block."""
    tokenizer: str = "characters"
    """characters or smiles (of the corpus), bytes, gpt2, mdlm-text8, bpe-N (learned from the
    corpus), or the path of a tokenizer.json."""
    validation: int = 64
    """Blocks of the fixed validation set."""
    probes: Literal["repair"] | None = None
    """Extra validation: repair counts how many masked or corrupted letters and words are
    restored."""

    def __post_init__(self) -> None:
        for name in ("length", "validation"):
            if getattr(self, name) < 1:
                raise ValueError(f"data.{name} must be at least 1, got {getattr(self, name)}")
        if self.share and self.windows != "documents":
            raise ValueError(f"data.share needs data.windows: documents, got {self.windows}")
        size_of(self.tokenizer)  # fails early, before the corpus is downloaded


@dataclass(frozen=True)
class Recipe:
    """All settings of a run."""

    data: DataConfig
    model: dict[str, Any]
    """Fields of the family's shape; vocabulary and length come from the data."""
    objective: ObjectiveChoice = field(default_factory=lambda: ObjectiveChoice(DSL, DSL.Options()))
    """The name of a family, or a mapping with its name as `kind` and its options."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    needs_init: bool = False
    """Whether the run must start from given weights."""
    smoke: dict[str, Any] = field(default_factory=dict)
    """Overrides that make the run a quick test."""


def find(name: str) -> Path:
    """Return the file of a recipe, given its path or the name of a bundled recipe."""
    for path in (Path(name).expanduser(), RECIPES / f"{name}.yaml"):
        if path.is_file():
            return path
    known = ", ".join(recipe_names())
    raise FileNotFoundError(f"no recipe {name!r}; expected a YAML file or one of {known}")


def read(path: Path, changes: Sequence[str] = (), *, smoke: bool = False) -> Recipe:
    """Read a recipe and apply overrides such as `trainer.steps=100`."""
    data = strict.read_yaml(path)
    if not isinstance(data, dict):
        raise ValueError(f"{path} must be a mapping with the keys data, model, …")
    if smoke and isinstance(data.get("smoke"), dict):
        _merge(data, data["smoke"])
    for change in changes:
        if isinstance(data.get("objective"), str):  # short for a mapping
            data["objective"] = {"kind": data["objective"]}
        key, equals, value = change.partition("=")
        if not equals:
            raise ValueError(f"a change must be key=value, got {strict.shown(change)}")
        parsed = strict.parse_yaml(value, f"the value of {_said(key)}")
        _assign(data, key.strip().split("."), parsed)
    name = path.stem if path.parent == RECIPES else str(path)
    return from_data(data, f"{name} with {_said(' '.join(changes))}" if changes else name)


def _said(text: str) -> str:
    """Return user input as one short line for a message."""
    return strict.cut(" ".join(text.split()))


def from_data(data: Any, name: str) -> Recipe:
    """Build a recipe from plain data; unknown keys are errors."""
    return strict.read(Recipe, data, name, by=_converter())


def write(recipe: Recipe) -> str:
    """Return the recipe as YAML, with all defaults."""
    text: str = yaml.safe_dump(_converter().unstructure(recipe), sort_keys=False)
    return text


def difference(before: Recipe, after: Recipe) -> list[str]:
    """List the fields that differ between two recipes, with both values."""
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


@cache
def _converter() -> cattrs.Converter:
    converter = strict.converter()
    converter.register_structure_hook(ObjectiveChoice, lambda data, _: _objective(data))
    converter.register_unstructure_hook(
        ObjectiveChoice,
        lambda choice: {"kind": choice.family.name, **converter.unstructure(choice.options)},
    )
    return converter


def _objective(data: Any) -> ObjectiveChoice:
    """Read `objective: mdlm` or the equivalent mapping."""
    fields = {"kind": data} if isinstance(data, str) else data
    if not isinstance(fields, Mapping):
        raise ValueError(f"objective must be a name or a mapping, got {strict.shown(fields)}")
    family = FAMILIES.find(fields.get("kind", DSL.name), "objective")
    options = {key: value for key, value in fields.items() if key != "kind"}
    read: Any = strict.read(family.Options, options, "objective", by=_converter())
    return ObjectiveChoice(family, read)


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
            raise ValueError(f"{_said('.'.join(keys))} is not a field of the recipe")
    data[last] = value
