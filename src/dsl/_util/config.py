"""Read frozen dataclasses from plain data and YAML, with strict checks and one-line errors."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import cattrs
import yaml

T = TypeVar("T")

MOST_SHOWN = 80
"""Maximum number of characters of a value in a message."""
DEEPEST = 40
"""Maximum nesting of YAML."""
LONGEST = 50_000
"""Maximum number of characters of YAML, which take about two seconds to parse."""


def converter() -> cattrs.Converter:
    """Make a converter that rejects unknown keys and values of the wrong type."""
    made = cattrs.Converter(forbid_extra_keys=True)
    for kind in (bool, int, float, str):
        made.register_structure_hook(kind, _checked)
    made.register_structure_hook_func(lambda kind: kind == dict[str, Any], _mapping)
    made.register_structure_hook_func(lambda kind: kind == float | tuple[float, ...], _numbers)
    made.register_structure_hook_func(
        lambda kind: getattr(kind, "__origin__", None) is Literal, _chosen
    )
    return made


def read(
    kind: type[T], data: Any, name: str, *, by: cattrs.Converter | None = None, keys: str = "keys"
) -> T:
    """Build a dataclass from plain data, with a one-line error if the data do not fit.

    Args:
        kind: The dataclass.
        data: A mapping with its fields.
        name: The name of the data in errors.
        by: A converter for further types.
        keys: The word for the fields in errors.
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"{name} must be a mapping of {keys}, got {shown(data)}")
    try:
        return (by or converter()).structure(dict(data), kind)
    except cattrs.BaseValidationError as error:
        raise ValueError(f"{name}: {explain(error)}") from error


def parse_yaml(text: str, name: str) -> Any:
    """Parse YAML (or JSON); malformed, circular or deeply nested text is an error."""
    if len(text) > LONGEST:
        raise ValueError(f"{name} has {len(text):,} characters, more than {LONGEST:,}")
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _require_plain(node)
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # impossible dates and numbers raise ValueError
        raise ValueError(f"{name} is not valid YAML: {one_line(error)}") from error


def read_yaml(path: Path) -> Any:
    """Read a YAML file."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}") from error
    return parse_yaml(text, str(path))


def explain(error: cattrs.BaseValidationError) -> str:
    """Describe the first faults in one line, with their places."""
    faults = cattrs.transform_error(error, format_exception=_reason)
    more = f"; and {len(faults) - 2} more" if faults[2:] else ""
    return cut("; ".join(faults[:2]), 6 * MOST_SHOWN) + more


def shown(value: Any) -> str:
    """Return a short form of a value for a message; of nested data only type and size."""
    if isinstance(value, Mapping | list | tuple | set):
        return f"a {type(value).__name__} of {len(value)}"
    return cut(
        repr(value) if not isinstance(value, int) or abs(value) < 10**60 else "a huge number"
    )


def _reason(error: BaseException, _: Any) -> str:
    if isinstance(error, KeyError):
        return f"missing {error.args[0]!r}"
    if isinstance(error, cattrs.ForbiddenExtraKeysError):
        unknown = ", ".join(shown(key) for key in sorted(error.extra_fields, key=str)[:5])
        known = ", ".join(field.name for field in fields(error.cl))
        return f"unknown key {unknown}; expected some of {known}"
    if isinstance(error, TypeError):  # not from a field: those are checked before
        return "expected a mapping of fields"
    return one_line(error) or type(error).__name__


def one_line(error: BaseException) -> str:
    """Return an error's message as one short line."""
    return cut(" ".join(str(error).split()), 4 * MOST_SHOWN)


def cut(text: str, most: int = MOST_SHOWN) -> str:
    """Cut a text short for a message."""
    return text if len(text) <= most else f"{text[:most]}…"


def _checked(value: Any, kind: type) -> Any:
    if kind is float and isinstance(value, str):
        value = _number(value)  # YAML 1.1 reads 3e-4 as a string
    accepted = (int, float) if kind is float else (kind,)
    if type(value) not in accepted:
        raise ValueError(f"expected {kind.__name__}, got {shown(value)}")
    if kind is int and abs(value) >= 2**63:
        raise ValueError(f"expected an int of 64 bits, got {shown(value)}")
    if kind is float and (abs(value) > 1e300 or value != value):
        raise ValueError(f"expected a finite number, got {shown(value)}")
    return kind(value)


def _mapping(value: Any, _: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"expected a mapping with names as keys, got {shown(value)}")
    return dict(value)


def _numbers(value: Any, _: Any) -> float | tuple[float, ...]:
    """Read a number, or a list of numbers."""
    if isinstance(value, list | tuple):
        return tuple(_checked(each, float) for each in value)
    number: float = _checked(value, float)
    return number


def _chosen(value: Any, kind: Any) -> Any:
    choices = get_args(kind)
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        raise ValueError(f"expected one of {', '.join(map(repr, choices))}; got {shown(value)}")
    return value


def _number(text: str) -> float | str:
    try:
        value = float(text)
    except ValueError:
        return text
    return value if math.isfinite(value) else text


class _Loader(yaml.SafeLoader):
    """A YAML loader that rejects deep nesting and type tags.

    Constructors of tagged types may raise any exception.
    """

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Read one value and everything in it."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if getattr(event, "tag", None) is not None:
            raise ValueError("type tags such as !!int are not supported")
        self.depth += 1
        if self.depth > DEEPEST:
            raise ValueError(f"it is nested too deeply, more than {DEEPEST} levels")
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node


def _require_plain(root: yaml.Node) -> None:
    """Reject duplicate keys, and aliases, which may expand without limit."""
    seen: set[int] = set()
    pending = [root]
    while pending:
        node = pending.pop()
        inner = _children(node)
        if id(node) in seen and inner:
            raise ValueError("aliases of lists and mappings are not supported")
        if isinstance(node, yaml.MappingNode):
            keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
            if twice := [key for key, times in keys.items() if times > 1]:
                raise ValueError(f"duplicate key {shown(twice[0])}")
        seen.add(id(node))
        pending += inner


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []
