"""The registry of model families."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from torch import nn

from dsl._util.registry import Registry
from dsl.families.base import Family
from dsl.models import folder


def _checked(name: str, family: Any) -> Family:
    """Accept a family or its class, whose options can be written in a recipe."""
    made: Family = family() if isinstance(family, type) else family
    if not isinstance(made, Family) or made.name != name:
        raise ValueError(f"the family {name!r} must be a Family of that name, got {made!r}")
    if not is_dataclass(made.Options) or "kind" in {f.name for f in fields(made.Options)}:
        raise ValueError(
            f"the Options of family {name!r} must be a dataclass without a field 'kind'"
        )
    return made


FAMILIES: Registry[Family] = Registry("dsl.families", "family", _checked)


def register(family: Family) -> None:
    """Add a family for this process; an installed package uses an entry point instead."""
    FAMILIES.register(family.name, family)


def read(path: Path) -> tuple[Family, nn.Module]:
    """Read a network of any family from a checkpoint directory."""
    kind = folder.read_config(path).get("kind", "dsl")
    family = FAMILIES.find(kind, f"the kind of model in {path}")
    return family, family.read(path)
