"""Recipes: everything a run depends on, as YAML over frozen dataclasses."""

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
    """A family, and how its objective is set."""

    family: Family
    options: Any


@dataclass(frozen=True)
class DataConfig:
    """What is read."""

    corpus: str
    """A name that `dsl data` knows, or a file."""
    length: int
    """Tokens in a sequence."""
    windows: Kind = "overlapping"
    """Windows that begin anywhere, consecutive blocks (wrap), or one of the documents each."""
    share: bool = False
    """Whether short documents that follow each other share a block."""
    tokenizer: str = "characters"
    """characters or smiles (of the corpus), bytes, gpt2, mdlm-text8, bpe-N (learned from the
    corpus), or the path of a tokenizer.json."""
    validation: int = 64
    """Blocks of the fixed validation set."""
    probes: Literal["repair"] | None = None
    """What validation asks besides: repair counts how many blanked or garbled letters and words
    are put right."""

    def __post_init__(self) -> None:
        for name in ("length", "validation"):
            if getattr(self, name) < 1:
                raise ValueError(f"data.{name} must be at least 1, got {getattr(self, name)}")
        if self.share and self.windows != "documents":
            raise ValueError(f"data.share is for data.windows: documents, got {self.windows}")
        size_of(self.tokenizer)  # refuses one that cannot be, before the corpus is fetched


@dataclass(frozen=True)
class Recipe:
    """A run."""

    data: DataConfig
    model: dict[str, Any]
    """Fields of the family's shape; the vocabulary and the length come from the data."""
    objective: ObjectiveChoice = field(default_factory=lambda: ObjectiveChoice(DSL, DSL.Options()))
    """The name of a family; or a mapping with that as its `kind`, and its options."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    needs_init: bool = False
    """Whether the run makes sense only with given weights to begin with."""
    smoke: dict[str, Any] = field(default_factory=dict)
    """Changes that make the run as short as a test."""


def find(name: str) -> Path:
    """Return the file of a recipe: a path, or the name of one that comes with the package."""
    for path in (Path(name).expanduser(), RECIPES / f"{name}.yaml"):
        if path.is_file():
            return path
    known = ", ".join(recipe_names())
    raise FileNotFoundError(f"no recipe {name!r}; expected a YAML file or one of {known}")


def read(path: Path, changes: Sequence[str] = (), *, smoke: bool = False) -> Recipe:
    """Read a recipe and apply changes such as `trainer.steps=100`."""
    data = strict.read_yaml(path)
    if not isinstance(data, dict):
        raise ValueError(f"{path} must hold a mapping with data, model, …")
    if smoke and isinstance(data.get("smoke"), dict):
        _merge(data, data["smoke"])
    for change in changes:
        if isinstance(data.get("objective"), str):  # which stands for a mapping
            data["objective"] = {"kind": data["objective"]}
        key, equals, value = change.partition("=")
        if not equals:
            raise ValueError(f"a change is written key=value, got {strict.shown(change)}")
        parsed = strict.parse_yaml(value, f"the value of {_said(key)}")
        _assign(data, key.strip().split("."), parsed)
    name = path.stem if path.parent == RECIPES else str(path)
    return from_data(data, f"{name} with {_said(' '.join(changes))}" if changes else name)


def _said(text: str) -> str:
    """Repeat what somebody wrote, in one line and not at length."""
    return strict.cut(" ".join(text.split()))


def from_data(data: Any, name: str) -> Recipe:
    """Build a recipe from plain data, refusing keys it does not have."""
    return strict.read(Recipe, data, name, by=_converter())


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
    """Read `objective: mdlm`, or the mapping that it stands for."""
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
