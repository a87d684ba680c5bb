"""The small language of sampler names: `preset`, `preset@T`, `preset@T:field=value,field=value`.

The hybrid has two budgets, `hybrid@Tc+Tm`. The fields are the arguments of the preset's function
and those of `Draw`: `remdm-loop@128:eta=0.02,top_p=0.9`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

from dsl.denoiser import Question
from dsl.presets import factories
from dsl.sampling.ancestral import MOST_STEPS
from dsl.sampling.categorical import Draw
from dsl.sampling.sampler import Sampler
from dsl.strict import shown

Factory = Callable[..., Sampler]

PRESETS: dict[str, Factory] = {
    "mdlm": factories.mdlm,
    "fb": factories.fb,
    "dfm": factories.dfm,
    "remdm-cap": factories.remdm_cap,
    "remdm-rescale": factories.remdm_rescale,
    "remdm-conf": factories.remdm_conf,
    "remdm-loop": factories.remdm_loop,
    "first-hitting": factories.first_hitting,
    "roar": factories.roar,
    "causal": factories.causal,
    "confident": factories.confident,
    "localize": factories.localize,
    "edm": factories.edm,
    "hybrid": factories.hybrid,
    "vp": factories.vp,
    "vp-ode": factories.vp_ode,
    "timed": factories.timed,
    "ardm": factories.ardm,
    "prism": factories.prism,
    "prism-loop": factories.prism_loop,
    "tweedie": factories.tweedie,
    "euler": factories.euler,
    "candi": factories.candi,
    "duo": factories.duo,
    "psi": factories.psi,
}


def register(name: str, factory: Factory) -> None:
    """Give a sampler of one's own a name.

    Args:
        name: What `--sampler` calls it.
        factory: Makes the sampler. A first argument `steps` takes what follows the @, the
            keyword-only ones become fields, and one of them must be `draw: Draw = Draw()`.
    """
    if not isinstance(name, str) or not re.fullmatch(r"[^@:,=\s]+", name):
        raise ValueError(f"name must be a word without @ : , or =, got {name!r}")
    if PRESETS.get(name, factory) is not factory:
        raise ValueError(f"there is a sampler {name!r} already")
    parameters = inspect.signature(factory).parameters
    if "draw" not in parameters or not isinstance(parameters["draw"].default, Draw):
        raise ValueError(f"the factory of sampler {name!r} must take draw: Draw = Draw()")
    PRESETS[name] = factory


def forms() -> list[str]:
    """List how every sampler is written."""
    return [_form(name) for name in PRESETS]


def serving(answers: frozenset[Question]) -> list[str]:
    """List the samplers that ask no more than a network answers."""
    return [_form(name) for name in PRESETS if sampler(example(name)).needs <= answers]


def example(name: str, steps: int = 8) -> str:
    """Write the name of a preset with a budget, if it takes one."""
    form = _form(name)
    return form.replace("Tc+Tm", f"{steps}+{steps}").replace("@T", f"@{steps}")


def _form(name: str) -> str:
    steps = inspect.signature(PRESETS[name]).parameters.get("steps")
    if steps is None or steps.default is not inspect.Parameter.empty:
        return name
    return f"{name}@Tc+Tm" if name in PAIRED else f"{name}@T"


PAIRED = ("hybrid",)
"""Presets with two budgets."""


def sampler(name: str) -> Sampler:
    """Build a sampler from its name, budget and fields: `remdm-loop@128:eta=0.02,top_p=0.9`."""
    if not isinstance(name, str):
        raise ValueError(f"a sampler's name is a text such as 'mdlm@64', got {shown(name)}")
    head, _, fields = name.partition(":")
    preset, at, budget = head.partition("@")
    known = ", ".join(forms())
    if preset not in PRESETS:
        raise ValueError(f"unknown sampler {preset[:60]!r}; expected one of {known}")
    build = PRESETS[preset]
    parameters = inspect.signature(build).parameters
    positional = []
    if "steps" in parameters:
        if not at and parameters["steps"].default is inspect.Parameter.empty:
            raise ValueError(f"sampler {preset!r} needs a number of steps; expected one of {known}")
        if at:
            positional = [_budget(preset, budget)]
    elif at:
        raise ValueError(f"sampler {preset!r} takes as many steps as tokens; drop '@{budget[:60]}'")
    return build(*positional, **_fields(preset, build, fields))


def _budget(preset: str, text: str) -> int | tuple[int, int]:
    parts = text.split("+")
    wanted = 2 if preset in PAIRED else 1
    form = f"{preset}@16+32" if preset in PAIRED else f"{preset}@128"
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
    default_draw: Draw = inspect.signature(build).parameters["draw"].default
    values: dict[str, Any] = {}
    draw = dict(vars(default_draw))
    known = [n for n in own if n not in ("steps", "draw", "return")]
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
