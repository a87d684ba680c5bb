"""Frozen dataclasses from plain data and back: strict about keys and types, clear about faults."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import cattrs


def converter() -> cattrs.Converter:
    """Make a converter that refuses unknown keys and values of the wrong type."""
    made = cattrs.Converter(forbid_extra_keys=True)
    for kind in (bool, int, float):
        made.register_structure_hook(kind, _checked)
    return made


def explain(error: cattrs.BaseValidationError) -> str:
    """Say in one line what does not fit, and where."""
    return "; ".join(cattrs.transform_error(error, format_exception=_reason))


def _reason(error: BaseException, _: Any) -> str:
    if isinstance(error, KeyError):
        return f"missing {error.args[0]!r}"
    if isinstance(error, cattrs.ForbiddenExtraKeysError):
        unknown = ", ".join(map(repr, sorted(error.extra_fields)))
        known = ", ".join(field.name for field in fields(error.cl))
        return f"unknown key {unknown}; expected some of {known}"
    return str(error) or type(error).__name__


def _checked(value: Any, kind: type) -> Any:
    if kind is float and isinstance(value, str):
        value = _number(value)  # YAML reads 3e-4 as text, because it wants 3.0e-4; people do not
    accepted = (int, float) if kind is float else (kind,)
    if type(value) not in accepted:
        raise ValueError(f"expected {kind.__name__}, got {value!r}")
    return kind(value)


def _number(text: str) -> float | str:
    try:
        value = float(text)
    except ValueError:
        return text
    return value if math.isfinite(value) else text
