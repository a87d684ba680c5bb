"""The families there are, by name."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path

from torch import nn

from dsl.families.adlm import AdlmFamily
from dsl.families.ar import ArFamily
from dsl.families.ardm import ArdmFamily
from dsl.families.candi import CandiFamily
from dsl.families.cdcd import CdcdFamily
from dsl.families.d3pm import D3pmFamily
from dsl.families.dsl import DslFamily
from dsl.families.duo import DuoFamily
from dsl.families.family import Family
from dsl.families.genmd4 import GenMd4Family
from dsl.families.mac import MacFamily
from dsl.families.md4 import Md4Family
from dsl.families.mdlm import MdlmFamily
from dsl.families.multinomial import MultinomialFamily
from dsl.families.plaid import PlaidFamily
from dsl.families.prism import PrismFamily
from dsl.families.sedd import SeddFamily
from dsl.families.vp import VpFamily
from dsl.models import folder

DSL = DslFamily()
FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        DSL,
        MdlmFamily(),
        ArFamily(),
        VpFamily(),
        ArdmFamily(),
        MacFamily(),
        PrismFamily(),
        AdlmFamily(),
        D3pmFamily(),
        MultinomialFamily(),
        SeddFamily(),
        DuoFamily(),
        Md4Family(),
        GenMd4Family(),
        PlaidFamily(),
        CdcdFamily(),
        CandiFamily(),
    )
}


def register(family: Family) -> None:
    """Add a family, so that recipes, checkpoints and commands know its name."""
    if FAMILIES.get(family.name, family) is not family:
        raise ValueError(f"there is a family {family.name!r} already")
    if not is_dataclass(family.Options) or "kind" in {f.name for f in fields(family.Options)}:
        raise ValueError(
            f"the Options of family {family.name!r} must be a dataclass, no field kind"
        )
    FAMILIES[family.name] = family


def by_name(name: object, where: str) -> Family:
    """Return a family, or say which there are.

    Args:
        name: The family's name, as somebody wrote it.
        where: What the name was found in, as an error calls it.
    """
    if not isinstance(name, str) or name not in FAMILIES:
        shown = repr(name)[:60]
        raise ValueError(f"{where} must be one of {', '.join(FAMILIES)}; got {shown}")
    return FAMILIES[name]


def read(path: Path) -> tuple[Family, nn.Module]:
    """Read a network of any family from a checkpoint directory."""
    kind = folder.read_config(path).get("kind", DSL.name)
    family = by_name(kind, f"the kind of model in {path}")
    return family, family.read(path)
