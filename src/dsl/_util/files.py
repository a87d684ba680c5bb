"""Files on disk: written whole or not at all, and held by one process at a time.

What is being written lies in a part, a hidden directory beside its target. A part is locked while
its process lives, so what a killed process left can be told from what is still being written, and
is swept away.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from safetensors import SafetensorError

LOCK = "lock"
HALF_CHARACTER = re.compile(rb"\\u[dD][89a-fA-F]")
"""Half of a character outside the basic plane; alone, it is not text and cannot be written."""
DISK_FAULTS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}
"""Errors that say something of the disk, whoever met them."""


class NotWritten(OSError):
    """What could not be written, and why."""

    def __init__(self, what: object, error: Exception) -> None:
        known = error.reason if isinstance(error, NotWritten) else getattr(error, "strerror", None)
        self.reason: str = known or str(error).partition("\n")[0]
        super().__init__(
            f"{what} could not be written ({self.reason}); what was there before is intact"
        )


@contextmanager
def whole(path: Path, called: str | None = None) -> Iterator[Path]:
    """Give a place to write a file or a directory to, which then takes the name `path`.

    After an error, what was at `path` is as it was. The place has the target's own name in a
    directory of its own, so that a library may write there in whatever way it likes.

    Raises:
        OSError: if the disk is full or refuses; `called` is what the error calls the target.
    """
    what = called or path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path.parent, path.name)
        part, lock = _begin(path)
    except OSError as error:
        raise NotWritten(what, error) from error
    made = part / path.name
    try:
        with reported(what):
            yield made
        try:
            _sync(made)
            _place(made, path, part / "before")
        except OSError as error:
            raise NotWritten(what, error) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
        lock.close()


def require_place(path: Path, *, directory: bool = False) -> None:
    """Refuse a place where nothing can be written, before any work is done for it.

    Nothing is left behind: what is tried is a nameless file in the nearest directory that exists.
    """
    there = path.resolve()
    if there.exists() and not (there.is_dir() if directory else there.is_file()):
        kind = "a directory" if directory else "a file"
        raise FileExistsError(f"{path} cannot be written: it exists and is not {kind}")
    folder = there if directory else there.parent
    nearest = next(place for place in (folder, *folder.parents) if place.exists())
    if not nearest.is_dir():
        raise NotADirectoryError(f"{path} cannot be written: {nearest} is not a directory")
    try:
        tempfile.TemporaryFile(dir=nearest).close()
    except OSError as error:
        raise type(error)(f"{path} cannot be written: {error.strerror}") from error


@contextmanager
def reported(what: object) -> Iterator[None]:
    """Let a fault of the disk say what could not be written; other errors pass as they are."""
    try:
        yield
    except SafetensorError as error:
        raise NotWritten(what, error) from error
    except OSError as error:
        if error.errno in DISK_FAULTS or isinstance(error, NotWritten):
            raise NotWritten(what, error) from error
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    with whole(path) as part:
        part.write_text(text, encoding="utf-8")


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def parse_json(content: bytes, where: str, *, unique: bool = False) -> Any:
    """Read JSON that somebody else may have written; `unique` refuses a key that comes twice.

    Raises:
        ValueError: that begins with `where`, whatever is wrong.
    """
    try:
        found = json.loads(content.decode("utf-8"), object_pairs_hook=_once if unique else None)
        if HALF_CHARACTER.search(content):
            json.dumps(found, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise ValueError(f"{where} is not JSON: {reason}") from error
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {twice[:80]!r} comes twice")
    return found


@contextmanager
def locked(path: Path, *, wait: bool = False, rank: int = 0) -> Iterator[None]:
    """Hold a file or directory against other processes; rank 0 of a job holds it for all ranks.

    Raises:
        ValueError: if another process holds it and `wait` does not say to wait for that one.
    """
    if rank > 0:
        yield
        return
    lock = path / LOCK if path.is_dir() else path.with_name(f".{path.name}.{LOCK}")
    file = _take(lock, wait=wait)
    if file is None:
        raise ValueError(f"another process is at work in {path}")
    with file:
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)  # while it is held: whoever waits sees that it is gone


def sweep(folder: Path, name: str | None = None) -> None:
    """Remove the parts that killed processes left in a folder: all, or those of one target."""
    pattern = "*" if name is None else glob.escape(name)
    for part in folder.glob(f".{pattern}.*.part"):
        try:
            lock = _take(part / LOCK, wait=False)
        except OSError:
            continue  # another user's, or just finished
        if lock is not None:
            with lock:
                shutil.rmtree(part, ignore_errors=True)


def _begin(path: Path) -> tuple[Path, TextIO]:
    """Make a part and lock it; one that is swept before it is locked is made again."""
    while True:
        part = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent))
        try:
            lock = _take(part / LOCK, wait=False)
        except FileNotFoundError:
            continue
        except OSError:
            shutil.rmtree(part, ignore_errors=True)
            raise
        if lock is not None:
            return part, lock


def _take(lock: Path, *, wait: bool) -> TextIO | None:
    """Open and lock a file that its holders remove; None if another process has it."""
    import fcntl

    while True:
        file = lock.open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if _same(file, lock):
                return file
        except BlockingIOError:
            file.close()
            return None
        except BaseException:
            file.close()
            raise
        file.close()


def _same(file: TextIO, path: Path) -> bool:
    """Whether an open file is still the one that has this name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _sync(made: Path) -> None:
    """See the bytes on disk before they get their name."""
    assert made.exists(), f"nothing was written for {made.name}"
    for path in made.rglob("*") if made.is_dir() else [made]:
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


def _place(made: Path, path: Path, before: Path) -> None:
    """Give what was made its name; a directory that has the name makes room first."""
    if not (made.is_dir() and path.is_dir()):
        os.replace(made, path)
        return
    os.rename(path, before)
    try:
        os.rename(made, path)
    except OSError:
        os.rename(before, path)
        raise
