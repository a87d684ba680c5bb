"""Checkpoints appear whole, whoever kills their writer and however full the disk is."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

from dsl.training import checkpoint
from dsl.training.checkpoint import MANIFEST, Checkpoints

ONE = {"w": torch.ones(1)}


def nothing(_: Path) -> None:
    """Write no model."""


def newest(store: Checkpoints) -> tuple[int | None, list[str]]:
    told: list[str] = []
    found = store.newest(told.append)
    return found and found.step, told


@pytest.mark.parametrize(
    "error", [SafetensorError("I/O error: No space left"), OSError(28, "No space left")]
)
def test_a_full_disk_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    store = Checkpoints(tmp_path)
    store.save(1, ONE, {}, nothing)

    def full(_: object, path: Path) -> None:
        path.write_bytes(b"half")
        raise error

    monkeypatch.setattr(checkpoint, "save_file", full)
    for step in (1, 2):
        message = rf"^the checkpoint of step {step} could not be written \([^()]*No space left\); "
        with pytest.raises(OSError, match=message):
            store.save(step, ONE, {}, nothing)
    assert newest(store) == (1, [])
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def test_a_step_saved_twice_is_its_second_self(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    for value in (1.0, 2.0):
        store.save(1, {"w": torch.full((1,), value)}, {"value": value}, nothing)
    found = store.newest(lambda _: None)
    assert found is not None and found.about == {"value": 2.0}
    assert float(found.tensors()["w"]) == 2.0


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b"{}", b'{"step": 2, "about": 5, "sha256": {}}'],
)
def test_a_manifest_that_is_none_is_passed_over(tmp_path: Path, content: bytes) -> None:
    store = Checkpoints(tmp_path)
    for step in (1, 2):
        store.save(step, ONE, {"validation": {"loss": 1.0 / step}}, nothing)
    (tmp_path / "step-00000002" / MANIFEST).write_bytes(content)
    step, told = newest(store)
    assert step == 1
    assert len(told) == 1 and told[0].startswith("step-00000002 is damaged (")
    best = store.best()
    assert best is not None and best.name == "step-00000001"


def killed_in_save(folder: Path) -> None:
    Checkpoints(folder).save(2, ONE, {}, lambda _: os.kill(os.getpid(), signal.SIGKILL))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_killed_writer_leaves_nothing_for_long(tmp_path: Path) -> None:
    """Not even of a step that is never saved again."""
    store = Checkpoints(tmp_path)
    store.save(1, ONE, {}, nothing)
    process = multiprocessing.get_context("fork").Process(target=killed_in_save, args=(tmp_path,))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 2
    assert newest(store) == (1, [])
    store.save(3, ONE, {}, nothing)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000001", "step-00000003"]


def test_what_a_killed_process_left_is_gone_after_the_next_save(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    orphan = tmp_path / ".step-00000003.abcdef.part"
    orphan.mkdir()
    (orphan / "half").write_bytes(b"half")
    store.save(4, ONE, {}, nothing)
    assert not orphan.exists()


@pytest.mark.parametrize("name", [MANIFEST, "training.safetensors"])
@pytest.mark.parametrize("fault", [errno.EACCES, errno.EIO, errno.EMFILE])
def test_a_checkpoint_that_cannot_be_read_is_not_damaged(
    name: str, fault: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Going back to an older checkpoint, or to step 0, would throw good ones away."""
    store = Checkpoints(tmp_path)
    for step in (1, 2):
        store.save(step, ONE, {}, nothing)
    plain = Path.open

    def failing(path: Path, *args: Any, **kwargs: Any) -> Any:
        if path.name == name and path.parent.name == "step-00000002":
            raise OSError(fault, os.strerror(fault))
        return plain(path, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", failing)
        with pytest.raises(OSError, match="step-00000002 cannot be read"):
            newest(store)
    assert newest(store) == (2, [])


def test_a_manifest_without_checksums_is_damaged(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    for step in (1, 2):
        store.save(step, ONE, {}, nothing)
    (tmp_path / "step-00000002" / MANIFEST).write_text('{"step": 2, "about": {}, "sha256": {}}')
    found, said = newest(store)
    assert found == 1 and "has no checksum of training.safetensors" in said[0]
