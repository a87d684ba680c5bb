"""Samplers by name: `mdlm@64`, `remdm-loop@128:eta=0.02,top_p=0.9`, `hybrid@16+32`.

A sampler is a frozen dataclass, or a function that builds one, under a name in the entry-point
group `dsl.samplers`. Everything else is read from its signature: `num_steps` is the budget after
the @, the other parameters and those of `Draw` are the fields after the colon, and the first line
of its docstring is its row in help and docs.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, get_args, get_origin, get_type_hints

from dsl._util.config import shown
from dsl._util.registry import Registry
from dsl.samplers.base import Sampler
from dsl.samplers.draw import Draw
from dsl.samplers.masked import MOST_STEPS

Factory = Callable[..., Sampler]


def _checked(name: str, factory: Factory) -> Factory:
    """Raise an error if the short form cannot describe a sampler."""
    if not isinstance(name, str) or not re.fullmatch(r"[^@:,=\s]+", name):
        raise ValueError(f"name must be a word without @ : , or =, got {name!r}")
    parameters = inspect.signature(factory).parameters
    if "draw" not in parameters or not isinstance(parameters["draw"].default, Draw):
        raise ValueError(f"the sampler {name!r} must take draw: Draw = Draw()")
    return factory


SAMPLERS: Registry[Factory] = Registry("dsl.samplers", "sampler", _checked)
"""Every sampler that has a name."""


def register(name: str, factory: Factory) -> None:
    """Name a sampler for this process; an installed package uses an entry point instead."""
    SAMPLERS.register(name, factory)


def forms() -> list[str]:
    """List how every sampler is written, such as `mdlm@T`."""
    return [form(name) for name in SAMPLERS]


def serving(protocol: type) -> list[str]:
    """List the samplers that a network of this protocol can serve."""
    return [form(name) for name in SAMPLERS if sampler(example(name)).asks in protocol.__mro__]


def summary(name: str) -> str:
    """Return the first line of a sampler's docstring."""
    return (inspect.getdoc(SAMPLERS[name]) or "").partition("\n")[0]


def fields(name: str) -> dict[str, Any]:
    """Return the fields of a sampler's short form, with their defaults."""
    parameters = inspect.signature(SAMPLERS[name]).parameters
    return {n: p.default for n, p in parameters.items() if n not in ("num_steps", "draw")}


def example(name: str, steps: int = 8) -> str:
    """Write the name of a sampler with a budget, if it needs one."""
    return form(name).replace("Tc+Tm", f"{steps}+{steps}").replace("@T", f"@{steps}")


def form(name: str) -> str:
    """Write how a sampler is named: with one budget, with two, or with none."""
    steps = inspect.signature(SAMPLERS[name]).parameters.get("num_steps")
    if steps is None or steps.default is not inspect.Parameter.empty:
        return name
    return f"{name}@Tc+Tm" if _paired(name) else f"{name}@T"


def _paired(name: str) -> bool:
    """Whether a sampler has two budgets."""
    return get_origin(get_type_hints(SAMPLERS[name]).get("num_steps")) is tuple


def sampler(name: str) -> Sampler:
    """Build a sampler from its name, budget and fields: `remdm-loop@128:eta=0.02,top_p=0.9`."""
    if not isinstance(name, str):
        raise ValueError(f"a sampler's name is a text such as 'mdlm@64', got {shown(name)}")
    head, _, fields = name.partition(":")
    preset, at, budget = head.partition("@")
    if preset not in SAMPLERS:
        raise ValueError(f"unknown sampler {preset[:60]!r}; expected one of {_known()}")
    build = SAMPLERS[preset]
    parameters = inspect.signature(build).parameters
    positional = []
    if "num_steps" in parameters:
        if not at and parameters["num_steps"].default is inspect.Parameter.empty:
            raise ValueError(
                f"sampler {preset!r} needs a number of steps; expected one of {_known()}"
            )
        if at:
            positional = [_budget(preset, budget)]
    elif at:
        raise ValueError(f"sampler {preset!r} takes one step per token; drop '@{budget[:60]}'")
    return build(*positional, **_fields(preset, build, fields))


def _known() -> str:
    return ", ".join(forms())


def _budget(preset: str, text: str) -> int | tuple[int, int]:
    parts = text.split("+")
    wanted = 2 if _paired(preset) else 1
    form = f"{preset}@16+32" if _paired(preset) else f"{preset}@128"
    digits = all(part.isascii() and part.isdecimal() and len(part) < 20 for part in parts)
    if digits and not all(1 <= int(part) <= MOST_STEPS for part in parts):
        raise ValueError(
            f"{preset} makes at least 1 step and at most {MOST_STEPS:,}, got {shown(text)}; "
            f"expected e.g. {form}"
        )
    if len(parts) != wanted or not digits:
        raise ValueError(f"cannot read the steps {text[:60]!r} of {preset!r}; expected e.g. {form}")
    return (int(parts[0]), int(parts[1])) if wanted == 2 else int(parts[0])


def _fields(preset: str, build: Factory, text: str) -> dict[str, Any]:
    own, of_draw = get_type_hints(build), get_type_hints(Draw)
    parameters = inspect.signature(build).parameters
    default_draw: Draw = parameters["draw"].default
    values: dict[str, Any] = {}
    draw = dict(vars(default_draw))
    known = list(fields(preset))
    for item in filter(None, text.split(",")):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or (name not in known and name not in of_draw):
            raise ValueError(
                f"cannot use {item[:60]!r} with sampler {preset!r}; "
                f"its fields are {', '.join([*known, *of_draw])}"
            )
        if name in known:
            values[name] = _value(name, own[name], value)
        else:
            draw[name] = _value(name, of_draw[name], value)
    return values | {"draw": Draw(**draw)}


def _value(name: str, kind: Any, text: str) -> Any:
    if bool in (kind, *get_args(kind)):
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise ValueError(f"{name} must be true or false, got {shown(text)}")
    choices = [choice for choice in get_args(kind) if isinstance(choice, str)]
    if choices:
        if text in choices:
            return text
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {shown(text)}")
    try:
        return int(text) if int in (kind, *get_args(kind)) else float(text)
    except ValueError:
        raise ValueError(f"{name} must be a number, got {shown(text)}") from None
