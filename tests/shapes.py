"""Run-time checks of shapes and types, of some calls.

Pytest installs jaxtyping's import hook (`--jaxtyping-packages`), which checks every call of every
function of the package. In a loop over thousands of steps that costs more than the loop. Here each
function is checked at its first calls and at some of the later ones. `DSL_CHECK_ALL=1` checks all.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import os
from collections.abc import Callable
from typing import Any

import jaxtyping

FIRST, EVERY = 100, 101
"""Check the first calls of a function, then one call in so many. A prime, to miss no rhythm."""


def check_some_calls() -> None:
    """Let the import hook decorate functions so that some of their calls are checked."""
    if os.environ.get("DSL_CHECK_ALL") or getattr(jaxtyping.jaxtyped, "samples", False):
        return
    check_all = jaxtyping.jaxtyped

    def jaxtyped(*, typechecker: Any) -> Callable[[Any], Any]:
        def decorate(thing: Any) -> Any:
            if inspect.isclass(thing):
                if dataclasses.is_dataclass(thing) and "__init__" in vars(thing):
                    thing.__init__ = decorate(thing.__init__)
                return thing
            if isinstance(thing, property):
                return property(decorate(thing.fget), thing.fset, thing.fdel, thing.__doc__)
            if not inspect.isfunction(thing):  # a class method, a static method
                return check_all(thing, typechecker=typechecker)
            return _sampled(thing, check_all(thing, typechecker=typechecker))

        return decorate

    jaxtyped.samples = True
    jaxtyping.jaxtyped = jaxtyped


def _sampled(plain: Callable[..., Any], checked: Callable[..., Any]) -> Callable[..., Any]:
    calls = itertools.count()

    @functools.wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        number = next(calls)
        check = number < FIRST or number % EVERY == 0
        return (checked if check else plain)(*args, **kwargs)

    return call
