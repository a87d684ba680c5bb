"""A checkpoint cannot run code, whatever its format; an honest one is read."""

from __future__ import annotations

import collections
import gzip
import io
import os
import pickle
import sys
import tarfile
import types
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Union

import pytest
import torch
from safetensors.torch import save_file

from dsl.checkpoints.mdlm import StandIn, load, read


class Payload:
    """Creates a file when an ordinary unpickler reads it."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, ...]]:
        return os.mkdir, (str(self.marker),)


def bare(protocol: int) -> Callable[[Path, object], None]:
    def write(path: Path, content: object) -> None:
        path.write_bytes(pickle.dumps(content, protocol))

    return write


def old(path: Path, content: object) -> None:
    torch.save(content, path, _use_new_zipfile_serialization=False)


def tar(path: Path, content: object) -> None:
    """Write the layout of torch 0.1."""
    with tarfile.open(path, "w") as archive:
        for name in ("sys_info", "pickle", "storages", "tensors"):
            data = pickle.dumps(content, 2)
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


def zipped(path: Path, content: object) -> None:
    torch.save(content, path)


def script(path: Path, content: object) -> None:
    """Write an archive that torch.load would hand on to TorchScript."""
    archive(path, {"a/data.pkl": pickle.dumps(content, 2), "a/constants.pkl": b"\x80\x02).",
                   "a/version": b"3"})  # fmt: skip


def nested(path: Path, content: object) -> None:
    inner = io.BytesIO()
    torch.save(content, inner)
    archive(path, {"inner.ckpt": inner.getvalue()})


def inside(path: Path, content: object) -> None:
    """Put an archive where the pickle should be."""
    inner = io.BytesIO()
    torch.save(content, inner)
    archive(path, {"a/data.pkl": inner.getvalue(), "a/version": b"3"})


def squeezed(path: Path, content: object) -> None:
    path.write_bytes(gzip.compress(pickle.dumps(content, 2)))


def behind(path: Path, content: object) -> None:
    """Put an archive behind a pickle: zipfile finds the archive, a legacy reader the pickle."""
    torch.save({}, path)
    path.write_bytes(pickle.dumps(content, 2) + path.read_bytes())


def modern(path: Path, content: object) -> None:
    torch.save(content, path, pickle_protocol=4)


def archive(path: Path, records: dict[str, bytes], kind: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", kind) as file:
        for name, data in records.items():
            file.writestr(name, data)
    return path


FORMATS = [*(bare(protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)), old, tar, zipped,
           script, nested, inside, squeezed, behind, modern]  # fmt: skip


@pytest.mark.parametrize("write", FORMATS)
def test_no_format_runs_its_payload(write: Callable[[Path, object], None], tmp_path: Path) -> None:
    marker, path = tmp_path / "marker", tmp_path / "last.ckpt"
    write(path, {"state_dict": {}, "hyper_parameters": Payload(marker)})
    with pytest.raises(ValueError) as refused, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's remark on the protocol
        read(path)
    assert not marker.exists()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("write", [bare(0), old, zipped, behind])
def test_the_payload_does_run_elsewhere(
    write: Callable[[Path, object], None], tmp_path: Path
) -> None:
    """The test above tests something: these files run under torch's ordinary reader."""
    marker, path = tmp_path / "marker", tmp_path / "last.ckpt"
    write(path, Payload(marker))
    try:
        torch.load(path, weights_only=False)
    except Exception:  # a bare pickle is no checkpoint, but that is found out afterwards
        assert write is not zipped
    assert marker.exists()


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "posix.system",
        "subprocess.Popen",
        "builtins.eval",
        "builtins.exec",
        "builtins.getattr",
        "builtins.__import__",
        "importlib.import_module",
        "operator.attrgetter",
        "functools.partial",
        "webbrowser.open",
        "pickle.loads",
        "runpy.run_path",
    ],
)
def test_what_no_checkpoint_calls_is_named(name: str, tmp_path: Path) -> None:
    module, _, function = name.rpartition(".")
    program = f"c{module}\n{function}\nX\x01\x00\x00\x00a\x85R.".encode("latin-1")
    path = archive(tmp_path / "x.ckpt", {"a/data.pkl": b"\x80\x02" + program, "a/version": b"3"})
    with pytest.raises(ValueError, match=f"wants to call {name}, which no honest checkpoint does"):
        load(path)


@pytest.mark.parametrize(
    "name", ["torch.hub.load", "torch.storage._load_from_bytes", "numpy.load", "__main__.run"]
)
def test_functions_of_packages_are_not_called(name: str, tmp_path: Path) -> None:
    module, _, function = name.rpartition(".")
    call = f"c{module}\n{function}\nX\x01\x00\x00\x00a\x85R".encode("latin-1")
    program = b"\x80\x02}X\x01\x00\x00\x00k" + call + b"s."
    path = archive(tmp_path / "x.ckpt", {"a/data.pkl": program, "a/version": b"3"})
    assert type(load(path)["k"]) is StandIn


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-60])


def swollen(path: Path) -> None:
    """Let a storage of 16 bytes claim two billion numbers, and its tensor as many."""
    with zipfile.ZipFile(path) as file:
        records = {name: file.read(name) for name in file.namelist()}
    (name,) = (name for name in records if name.endswith("data.pkl"))
    records[name] = records[name].replace(b"K\x04", b"J\xff\xff\xff\x7f")
    archive(path, records)


def compressed(path: Path) -> None:
    with zipfile.ZipFile(path) as file:
        records = {name: file.read(name) for name in file.namelist()}
    archive(path, records, zipfile.ZIP_DEFLATED)


def garbled(path: Path) -> None:
    archive(path, {"a/data.pkl": b"\x93garbage", "a/version": b"3"})


def empty(path: Path) -> None:
    path.write_bytes(b"")


def claimed(path: Path) -> None:
    """Declare in the zip's own directory that data.pkl has four billion bytes."""
    data = bytearray(path.read_bytes())
    start = data.index(b"PK\x01\x02")
    data[start + 20 : start + 28] = b"\xfe\xff\xff\xff" * 2
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("spoil", [cut, swollen, compressed, garbled, empty, claimed])
def test_a_spoilt_file_is_one_line(spoil: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    torch.save({"weight": torch.arange(4.0)}, path)
    spoil(path)
    with pytest.raises(ValueError, match="is not a readable checkpoint") as refused:
        load(path)
    assert "\n" not in str(refused.value)


def test_a_checkpoint_holds_a_dictionary(tmp_path: Path) -> None:
    torch.save([1, 2], tmp_path / "list.ckpt")
    with pytest.raises(ValueError, match="must hold a dictionary, got list"):
        load(tmp_path / "list.ckpt")
    for content, message in (
        ({"state_dict": [1]}, "state_dict must be a dictionary, got list"),
        ({"state_dict": {}, "ema": {"shadow_params": 3}}, "must be a list of tensors"),
        ({"state_dict": {1: torch.ones(1)}}, "not an MDLM checkpoint"),
    ):
        torch.save(content, tmp_path / "odd.ckpt")
        with pytest.raises(ValueError, match=message):
            read(tmp_path / "odd.ckpt")


@pytest.fixture
def omega(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A package that the writer of a checkpoint had, with classes like omegaconf's."""
    source = """
class DictConfig:
    def __init__(self, content): self.content = content
    def __getstate__(self): return {"_content": self.content, "_parent": self}
    def __setstate__(self, state): raise AssertionError("the real class was used")
class Slots:
    __slots__ = ("value",)
    def __init__(self): self.value = 3
class AttributeDict(dict): pass
class FrozenList(list): pass
def find(name): return DictConfig(name)
class ByCall:
    def __reduce__(self): return find, ("x",)
"""
    module = types.ModuleType("omega")
    exec(source, module.__dict__)
    monkeypatch.setitem(sys.modules, "omega", module)
    return module


def test_an_honest_checkpoint_is_read(omega: types.ModuleType, tmp_path: Path) -> None:
    """Tensors and plain values arrive; everything of the writer's packages is inert."""
    weights = {"a": torch.randn(3, 2), "half": torch.randn(4).bfloat16(), "i": torch.arange(5)}
    shared = torch.randn(6)
    attributed = omega.AttributeDict(lr=0.1)
    attributed.extra = 1
    of = Union[int, None]  # noqa: UP007 -- pickled as a call of operator.getitem
    honest: dict[str, Any] = {
        "state_dict": collections.OrderedDict(weights),
        "views": [shared[:3], shared[3:], torch.nn.Parameter(torch.ones(2))],
        "ema": {"decay": 0.9999, "shadow_params": list(weights.values())},
        "hyper_parameters": {
            "config": omega.DictConfig({"root": Path("x"), "kind": dict, "of": of}),
            "slots": omega.Slots(),
            "call": omega.ByCall(),
            "attributes": attributed,
            "frozen": omega.FrozenList([1, 2]),
        },
        "callbacks": {"seen": collections.defaultdict(int, {"x": 1}), "last": {1, 2}},
        "window": collections.deque([1.0], maxlen=3),
        "random": (3, (2**32 - 1, 5), None),
        "epoch": 7,
    }
    path = tmp_path / "last.ckpt"
    torch.save(honest, path)
    marked = torch.serialization.get_safe_globals()
    loaded = load(path)
    assert set(torch.serialization.get_safe_globals()) == set(marked)
    for name, tensor in weights.items():
        assert torch.equal(loaded["state_dict"][name], tensor)
        assert loaded["state_dict"][name].dtype == tensor.dtype
    for ours, theirs in zip(loaded["views"], honest["views"], strict=True):
        assert torch.equal(ours, theirs)
    for ours, theirs in zip(loaded["ema"]["shadow_params"], weights.values(), strict=True):
        assert torch.equal(ours, theirs)
    assert loaded["epoch"] == 7 and loaded["random"] == (3, (2**32 - 1, 5), None)
    assert loaded["callbacks"] == {"seen": {"x": 1}, "last": {1, 2}}
    parameters = loaded["hyper_parameters"]
    assert {type(parameters[name]) for name in ("config", "slots", "call")} == {StandIn}
    assert parameters["attributes"] == {"lr": 0.1} and parameters["frozen"] == [1, 2]


def test_safetensors_by_another_name_are_read(tmp_path: Path) -> None:
    weights = {"a": torch.randn(3, 2)}
    save_file(weights, tmp_path / "last.ckpt")
    assert torch.equal(load(tmp_path / "last.ckpt")["a"], weights["a"])
