"""A sampler as plain data, for YAML files and for the records of runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import cattrs
from cattrs.strategies import configure_tagged_union

from dsl._util import config as strict
from dsl.samplers.base import Chain, Sampler
from dsl.samplers.masked import Alpha, Remask
from dsl.samplers.registry import SAMPLERS
from dsl.samplers.strided import Strided


def _home(module: str) -> str:
    """Return the package of a module."""
    return module.rpartition(".")[0]


def _kind(name: str) -> type | None:
    """Find a sampler class by its name, in the modules that named samplers come from."""
    for module in sorted(SAMPLERS.modules(), key=lambda m: (not m.startswith("dsl.samplers"), m)):
        found = vars(import_module(module)).get(name)
        if isinstance(found, type) and is_dataclass(found) and hasattr(found, "steps"):
            return found
    return None


def to_data(sampler: Sampler) -> dict[str, Any]:
    """Write a sampler as dictionaries and lists; `kind` names the class of each."""
    if isinstance(sampler, Chain):
        return {"kind": "Chain", "samplers": [to_data(stage) for stage in sampler.samplers]}
    if isinstance(sampler, Strided):
        return {"kind": "Strided", **vars(sampler), "sampler": to_data(sampler.sampler)}
    if getattr(sampler, "path", None) is not None:
        raise ValueError("a sampler along a custom path cannot be written as plain data")
    kind = type(sampler)
    if _home(kind.__module__) in map(_home, SAMPLERS.modules()):
        return {"kind": kind.__name__, **_converter().unstructure(sampler)}
    # One that was made elsewhere is recorded by its full name; it cannot be read back from a file.
    fields: dict[str, Any] = asdict(sampler) if is_dataclass(sampler) else {}
    return {"kind": f"{kind.__module__}.{kind.__qualname__}", **fields}


def from_data(data: Any, name: str = "the sampler") -> Sampler:
    """Build the sampler that `to_data` wrote, refusing unknown kinds and fields."""
    if not isinstance(data, dict) or not isinstance(data.get("kind"), str):
        raise ValueError(f"{name} must be a mapping with a 'kind', got {strict.shown(data)}")
    kind = data["kind"]
    if kind == "Chain":
        return _chain(data, name)
    if kind == "Strided":
        inner = from_data(data.get("sampler"), f"{name}: the sampler of 'Strided'")
        sizes = {key: value for key, value in data.items() if key not in ("kind", "sampler")}
        both = strict.read(_Sizes, sizes, f"{name} 'Strided'", by=_converter())
        return Strided(inner, both.window, both.stride)
    found = _kind(kind)
    if found is None:
        raise ValueError(
            f"unknown kind of sampler {strict.shown(kind)}; expected Chain, Strided, or a sampler "
            f"class of {', '.join(SAMPLERS.modules())}"
        )
    fields = {key: value for key, value in data.items() if key != "kind"}
    built: Sampler = strict.read(found, fields, f"{name} {kind!r}", by=_converter())
    return built


def read_file(path: Path) -> Sampler:
    """Read a sampler from a YAML or JSON file."""
    return from_data(strict.read_yaml(path), str(path))


@dataclass(frozen=True)
class _Sizes:
    """The fields of `Strided` except its sampler."""

    window: int
    stride: int


def _chain(data: dict[str, Any], name: str) -> Sampler:
    stages = data.get("samplers")
    if set(data) != {"kind", "samplers"} or not isinstance(stages, list) or not stages:
        raise ValueError(
            f"{name}: a Chain has a list of 'samplers' and nothing else, "
            f"got {strict.shown(stages)} and the keys {', '.join(map(strict.shown, data))}"
        )
    return Chain(tuple(from_data(stage, name) for stage in stages))


@cache
def _converter() -> cattrs.Converter:
    converter = strict.converter()
    for union in (Alpha, Remask):
        configure_tagged_union(union, converter, tag_name="kind")
        converter.register_structure_hook(union, _tagged(union, converter))
    # A path is a function of t, not data: it is None here or refused above.
    converter.register_structure_hook_func(lambda kind: "SNRPath" in str(kind), _no_path)
    return converter


def _tagged(union: Any, converter: cattrs.Converter) -> Callable[[Any, Any], Any]:
    """Read one of several classes, named by `kind`; other kinds raise an error."""
    inner = converter.get_structure_hook(union)
    known = [kind.__name__ for kind in get_args(union)]

    def read(data: Any, _: Any) -> Any:
        kind = data.get("kind") if isinstance(data, dict) else None
        if not isinstance(kind, str) or kind not in known:
            raise ValueError(
                f"expected a mapping whose 'kind' is one of {', '.join(known)}; "
                f"got {strict.shown(data if kind is None else kind)}"
            )
        return inner(data, union)

    return read


def _no_path(value: Any, _: Any) -> None:
    if value is not None:
        raise ValueError(f"a custom path cannot be read from a file, got {strict.shown(value)}")
