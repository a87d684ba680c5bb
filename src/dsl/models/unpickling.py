"""Reading a pickled checkpoint without letting it run anything.

A pickle is a program. Only the zip archives of torch.save are opened, and only by torch's own
reader of weights, which imports nothing. Classes that are not tensors become inert stand-ins, and a
name of the standard library that a checkpoint has no business to call is refused.
"""

from __future__ import annotations

import sys
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

INERT = {"argparse", "collections", "copyreg", "datetime", "decimal", "enum", "logging", "pathlib",
         "re", "types", "typing", "uuid"}  # fmt: skip
"""Standard modules whose objects are replaced like those of any package."""
PLAIN = {"builtins": {"bool", "bytes", "dict", "float", "frozenset", "int", "list", "object",
                      "range", "slice", "str", "tuple", "type"},
         "_operator": {"getitem"}}  # fmt: skip
"""What configurations name of other standard modules: plain types, and what makes Optional[int]."""


class StandIn:
    """An object that was in the pickle and means nothing here: it takes anything, does nothing."""

    def __new__(cls, *_: Any) -> Any:
        """Take any arguments."""
        return super().__new__(cls)

    def __setstate__(self, _: Any) -> None:
        return None


class StandInDict(StandIn):
    """Stands for a class of dictionaries. The reader fills none but torch's and Python's own."""

    def __new__(cls, *_: Any) -> Any:
        """Return an empty dictionary that can also bear attributes."""
        return OrderedDict()


class StandInList(StandIn):
    """Stands for a class of lists, for the same reason."""

    def __new__(cls, *_: Any) -> Any:
        """Return an empty list."""
        return []


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint written by torch.save, or safetensors under a checkpoint's name."""
    if _is_safetensors(path):
        return dict(load_file(path))
    _require_archive(path)
    try:
        wanted = get_unsafe_globals_in_checkpoint(path)
    except Exception as error:
        raise _unreadable(path, error) from error
    stand_ins: list[Any] = [(stand_in(name), name) for name in sorted(wanted)]
    try:
        # A mapped file bounds every tensor by the bytes that are there, whatever it declares.
        with safe_globals(stand_ins):
            loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:
        raise _unreadable(path, error) from error
    if not isinstance(loaded, dict):
        raise ValueError(f"{path} must hold a dictionary, got {type(loaded).__name__}")
    return loaded


def stand_in(name: str) -> type[StandIn]:
    """Choose what stands for a class or function, given its full name, or refuse it."""
    module, _, last = name.rpartition(".")
    root = module.split(".")[0]
    if root in sys.stdlib_module_names and root not in INERT and last not in PLAIN.get(module, ()):
        raise ValueError(
            f"the checkpoint wants to call {name}, which no honest checkpoint does; "
            "it was not opened"
        )
    if module != "builtins" and last.lower().endswith("dict"):
        return StandInDict
    return StandInList if last.lower().endswith(("list", "deque")) else StandIn


def _is_safetensors(path: Path) -> bool:
    """Whether the file starts with the length of a header that fits, and a brace."""
    with path.open("rb") as file:
        length, brace = int.from_bytes(file.read(8), "little"), file.read(1)
    return brace == b"{" and length <= path.stat().st_size - 8


def _require_archive(path: Path) -> None:
    """Refuse all but an archive as torch.save writes it, before a byte of it is unpickled."""
    with path.open("rb") as file:
        magic = file.read(4)
    if magic != b"PK\x03\x04":
        raise ValueError(
            f"{path} is not a readable checkpoint: it is neither a zip archive of torch.save nor "
            "safetensors; it was not opened"
        )
    try:
        with zipfile.ZipFile(path) as archive:
            records = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise _unreadable(path, error) from error
    if not any(record.filename.split("/")[1:] == ["data.pkl"] for record in records):
        raise ValueError(f"{path} is not a readable checkpoint: it holds no data.pkl")
    whole = path.stat().st_size
    for record in records:
        # torch.save never compresses, so that a record is no longer than its file.
        if record.compress_type != zipfile.ZIP_STORED or record.file_size > whole:
            raise ValueError(
                f"{path} is not a readable checkpoint: {record.filename} is compressed or longer "
                "than the file"
            )


def _unreadable(path: Path, error: Exception) -> ValueError:
    """Say in one line why torch's reader stopped: bad bytes can stop it in any way."""
    lines = str(error).splitlines() or [type(error).__name__]
    return ValueError(f"{path} is not a readable checkpoint: {lines[0]}")
