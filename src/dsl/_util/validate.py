"""Check arguments of public functions; errors give the name, the expectation and the value."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any


def whole_number(
    name: str, value: Any, *, least: int | None = None, most: int | None = None
) -> int:
    """Return a whole number, after checking its limits."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise ValueError(f"{name} must be a whole number, got {_shown(value)}")
    if abs(number) >= 2**63:
        raise ValueError(f"{name} must be a whole number of 64 bits, got one that is larger")
    if least is not None and number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    if most is not None and number > most:
        raise ValueError(f"{name} must be at most {most:,}, got {number}")
    return number


def finite_number(
    name: str, value: Any, *, least: float | None = None, most: float | None = None
) -> float:
    """Return a finite number, after checking its limits."""
    try:
        number = None if isinstance(value, bool | str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        number = None  # RuntimeError: a tensor of several numbers
    if number is None:
        raise ValueError(f"{name} must be a number, got {_shown(value)}")
    if not math.isfinite(number) or (least is not None and number < least):
        bound = "" if least is None else f" and at least {least:g}"
        raise ValueError(f"{name} must be finite{bound}, got {number:g}")
    if most is not None and number > most:
        raise ValueError(f"{name} must be at most {most:g}, got {number:g}")
    return number


def probability(name: str, value: Any) -> float:
    """Return a number in 0 … 1."""
    number = finite_number(name, value)
    if not 0 <= number <= 1:
        raise ValueError(f"{name} must lie in 0 … 1, got {number:g}")
    return number


def sequence(name: str, value: Any, of: str) -> Sequence[Any]:
    """Return a sequence that is not a string."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise ValueError(f"{name} must be a list of {of}, got {_shown(value)}")
    return value


def within(options: object, **limits: tuple[int, int]) -> None:
    """Check the limits of command-line options; None means not given."""
    for name, (least, most) in limits.items():
        value = getattr(options, name)
        for each in value if isinstance(value, tuple) else (value,):
            if each is not None and not least <= each <= most:
                flag = f"-{'' if len(name) == 1 else '-'}{name.replace('_', '-')}"
                raise ValueError(f"{flag} must lie in {least:,} … {most:,}, got {each}")


SEEDS = (0, 2**63 - 1)
"""Limits of a seed."""
LENGTHS = (1, 1_000_000)
"""Limits of a sequence length."""


def text(name: str, value: Any) -> str:
    """Return a string."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a text, got {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    if isinstance(value, int) and abs(value) > 10**60:
        return "a huge number"  # Python cannot print it
    shown = " ".join(repr(value).split())  # one line
    return f"{shown[:60]}… ({type(value).__name__})" if len(shown) > 60 else shown
