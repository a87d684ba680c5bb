"""Import optional dependencies, with an error that names the missing extra."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

DISTRIBUTION = "discrete-stochastic-localization"


def require(module: str, *, extra: str) -> ModuleType:
    """Import an optional dependency of an extra.

    Raises:
        ImportError: if the module is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or module.split(".")[0] != error.name.split(".")[0]:
            raise  # one of its own dependencies is missing
        raise ImportError(
            f"{module!r} is not installed. It comes with the {extra!r} extra: "
            f"pip install '{DISTRIBUTION}[{extra}]'"
        ) from error
