"""Export names from a package's modules, importing a module when one of its names is first used."""

from __future__ import annotations

import ast
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def exports(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package.

    The names are those that the package imports under `if TYPE_CHECKING:`, so that they are
    listed once for readers, type checkers and Python alike.
    """
    homes: dict[str, tuple[str, str]] = {}
    for block in ast.parse(Path(file).read_text(encoding="utf-8")).body:
        if isinstance(block, ast.If) and getattr(block.test, "id", "") == "TYPE_CHECKING":
            for line in block.body:
                assert isinstance(line, ast.ImportFrom) and line.module
                homes |= {a.asname or a.name: (line.module, a.name) for a in line.names}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, attribute = homes[name]
        if module == package:  # a module of the package, exported as a whole
            return import_module(f"{module}.{attribute}")
        return getattr(import_module(module), attribute)

    return get, lambda: sorted(homes)
