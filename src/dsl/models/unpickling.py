"""Reading a pickled checkpoint without letting it run anything.

A pickle is a program. Here its calls reach tensors and plain containers only; classes of other
packages become inert stand-ins, and anything of the standard library that a checkpoint has no
business to call is refused.
"""

from __future__ import annotations

import pickle
import sys
from _compat_pickle import IMPORT_MAPPING
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

PLAIN = {
    "builtins": {"set", "frozenset", "dict", "list", "tuple", "int", "float", "str", "bool",
                 "complex", "bytearray", "slice", "range", "bytes"},
    "collections": {"OrderedDict", "defaultdict", "Counter", "deque"},
}  # fmt: skip
TENSORS = {
    "torch._utils": {"_rebuild_tensor_v2", "_rebuild_parameter", "_rebuild_tensor"},
    "torch": {"Size", "device", "Tensor"},
    "torch.serialization": {"_get_layout"},
    "torch._tensor": {"_rebuild_from_type_v2"},
}
INERT = {"pathlib", "datetime", "enum", "typing", "argparse", "types", "decimal", "uuid", "copyreg"}
"""Standard modules whose objects are replaced like those of any package."""


class StandIn:
    """An object that was in the pickle and means nothing here: it takes anything, does nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.items: list[Any] = []

    def __setstate__(self, _: Any) -> None:
        return None

    def __setitem__(self, *_: Any) -> None:
        return None

    def append(self, _: Any) -> None:
        """Take an element, as a list would."""

    def extend(self, _: Any) -> None:
        """Take elements, as a list would."""

    def __call__(self, *_: Any, **__: Any) -> StandIn:
        """Answer a call with itself."""
        return self


class SafeUnpickler(pickle.Unpickler):
    """An unpickler that knows tensors and containers."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a harmless class or function, a stand-in, or refuse."""
        module = IMPORT_MAPPING.get(module, module)  # older protocols use Python 2's names
        harmless = name in PLAIN.get(module, ()) or name in TENSORS.get(module, ())
        if module == "torch":
            kind = getattr(torch, name, None)
            harmless |= name.endswith("Storage") or isinstance(kind, torch.dtype)
        if harmless:
            return super().find_class(module, name)
        root = module.split(".")[0]
        if root in sys.stdlib_module_names and root not in INERT:
            raise ValueError(
                f"the checkpoint wants to call {module}.{name}, which no honest checkpoint does; "
                "it was not opened"
            )
        return StandIn


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint written by torch.save."""
    # torch.load takes a module with these names in place of pickle itself.
    safe: Any = SimpleNamespace(
        Unpickler=SafeUnpickler, load=pickle.load, loads=pickle.loads, __name__="safe"
    )
    try:
        loaded = torch.load(path, map_location="cpu", pickle_module=safe, weights_only=False)
    except (pickle.UnpicklingError, RuntimeError, EOFError, AttributeError, TypeError) as error:
        raise ValueError(f"{path} is not a readable checkpoint: {error}") from error
    if not isinstance(loaded, dict):
        raise ValueError(f"{path} must hold a dictionary, got {type(loaded).__name__}")
    return loaded
