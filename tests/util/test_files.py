"""Files are written whole or not at all, whatever happens to their writer."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from safetensors import SafetensorError

from dsl._util.files import digest, locked, parse_json, sweep, whole, write_text

FULL = OSError(errno.ENOSPC, "No space left on device")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_its_old_self_until_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.txt"
    write_text(path, "old")
    with whole(path) as part:
        part.write_text("ne")
        assert path.read_text() == "old"
        part.write_text("new")
    assert path.read_text() == "new"
    assert names(path.parent) == ["a.txt"]


@pytest.mark.parametrize("kind", ["file", "directory"])
@pytest.mark.parametrize(
    "error, seen",
    [
        (ValueError("a mistake"), "^a mistake$"),
        (KeyboardInterrupt(), "^$"),
        (FULL, r"/target could not be written \(No space left on device\)"),
        (SafetensorError("I/O error: no space"), r"/target could not be written \(I/O error"),
        (OSError("the download broke off"), "^the download broke off$"),
        (FileNotFoundError(errno.ENOENT, "No such file"), "No such file"),
    ],
)
def test_an_error_leaves_what_was_there(
    kind: str, error: BaseException, seen: str, tmp_path: Path
) -> None:
    path = tmp_path / "target"
    inner = Path() if kind == "file" else Path("inner")
    if kind == "directory":
        path.mkdir()
    (path / inner).write_text("old")
    expected = OSError if isinstance(error, SafetensorError) else type(error)
    with pytest.raises(expected, match=seen), whole(path) as part:
        if kind == "directory":
            part.mkdir()
        (part / inner).write_text("half")
        raise error
    assert (path / inner).read_text() == "old"
    assert names(tmp_path) == ["target"]


def test_links_and_permissions_are_kept(tmp_path: Path) -> None:
    target, link = tmp_path / "there" / "target.txt", tmp_path / "link.txt"
    target.parent.mkdir()
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink() and target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o600
    assert sorted(tmp_path.iterdir()) == sorted([link, target.parent])


def test_a_directory_takes_the_place_of_another(tmp_path: Path) -> None:
    path = tmp_path / "made"
    for content in ("one", "two"):
        with whole(path) as part:
            part.mkdir()
            (part / content).write_text(content)
    assert names(path) == ["two"]
    assert names(tmp_path) == ["made"]


def test_one_fault_inside_another_is_said_once(tmp_path: Path) -> None:
    with (
        pytest.raises(OSError, match=r"^the model could not be written \(No space[^()]*\); "),
        whole(tmp_path / "model", "the model") as part,
    ):
        part.mkdir()
        with whole(part / "config.json"):
            raise FULL


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match=r"file/a could not be written \(.*\)"):
        write_text(tmp_path / "file" / "a", "text")


WRITER = """
import sys, time
from pathlib import Path
from dsl._util.files import locked, whole
path = Path(sys.argv[1])
with locked(path), whole(path) as part:
    part.write_text("half")
    print("ready", flush=True)
    time.sleep(600)
"""


def writer(path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def test_what_a_killed_writer_left_is_swept_and_a_living_ones_is_not(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    process = writer(path)
    try:
        write_text(path, "mine")
        assert len([name for name in names(tmp_path) if name.endswith(".part")]) == 1
        with pytest.raises(ValueError, match=r"at work in .*a\.txt"), locked(path):
            pass
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert path.read_text() == "mine"
    write_text(path, "mine again")
    with locked(path):
        assert ".a.txt.lock" in names(tmp_path)
    assert names(tmp_path) == ["a.txt"]


def test_a_sweep_takes_the_parts_of_a_folder_and_nothing_else(tmp_path: Path) -> None:
    for target in ("a", "b"):
        process = writer(tmp_path / target)
        process.kill()
        process.communicate()
        (tmp_path / f".{target}.lock").unlink()
    (tmp_path / "a.part").write_text("of somebody else")
    sweep(tmp_path, "a")
    assert [name.split(".")[1] for name in names(tmp_path)[:-1]] == ["b"]
    sweep(tmp_path)
    assert names(tmp_path) == ["a.part"]


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_a_lock_has_one_holder_and_leaves_nothing(kind: str, tmp_path: Path) -> None:
    path = tmp_path if kind == "directory" else tmp_path / "file"
    (tmp_path / "lock").write_text("a user's own file")
    with locked(path):
        with pytest.raises(ValueError, match="another process is at work"), locked(path):
            pass
        with locked(path, rank=1):
            pass
    assert names(tmp_path) == ["lock"]


def test_those_who_wait_come_one_after_the_other(tmp_path: Path) -> None:
    """Each reads a number and writes the next; were two at it at once, one would be lost."""
    path = tmp_path / "number"
    path.write_text("0")

    def count() -> None:
        for _ in range(5):
            with locked(path, wait=True):
                path.write_text(str(int(path.read_text()) + 1))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_text() == "20"
    assert names(tmp_path) == ["number"]


def test_writers_at_once_both_succeed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with whole(path) as first, whole(path) as second:
        first.write_text("first")
        second.write_text("second")
    assert path.read_text() == "first", "the outer one ends last"
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize(
    "content, reason",
    [
        (b"{", "Expecting"),
        (b"\xff\xfe", "utf-8"),
        (b"[" * 200_000 + b"]" * 200_000, "nested too deeply"),
        (b"9" * 5000, "digits"),
        (b'{"a": 1, "a": 2}', "duplicate key 'a'"),
        (rb'"\ud83d alone"', "surrogates"),
    ],
)
def test_json_of_others_is_refused_in_one_line(content: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^here, is not JSON: .*{reason}") as caught:
        parse_json(content, "here,", unique=True)
    assert "\n" not in str(caught.value)
    assert type(caught.value) is ValueError


def test_json_is_json() -> None:
    assert parse_json(rb'{"a": ["\ud83d\ude00", 1]}', "here") == {"a": ["😀", 1]}


def test_the_digest_is_sha256s(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    assert digest(tmp_path / "abc").startswith("ba7816bf8f01cfea")
    assert os.listdir(tmp_path) == ["abc"]
