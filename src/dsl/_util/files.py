"""Atomic file writes, locks, and JSON from untrusted files.

A file is first written into a part: a hidden directory beside its target. The part is locked while
its process is alive, so parts left by killed processes can be recognised and removed.
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
from functools import lru_cache
from pathlib import Path
from typing import Any

from filelock import BaseFileLock, FileLock, Timeout
from safetensors import SafetensorError

LOCK = ".dsl.lock"
"""The lock file inside a locked directory or a part."""
HALF_CHARACTER = re.compile(rb"\\u[dD][89a-fA-F]")
"""Escape of a surrogate; an unpaired one cannot be encoded as UTF-8."""
DISK_FAULTS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}
"""Errors of the disk rather than of the caller."""


class NotWritten(OSError):
    """A target could not be written; the message names it and gives the reason."""

    def __init__(self, what: object, error: Exception) -> None:
        known = error.reason if isinstance(error, NotWritten) else getattr(error, "strerror", None)
        self.reason: str = known or str(error).partition("\n")[0]
        super().__init__(
            f"{what} could not be written ({self.reason}); what was there before is intact"
        )


@contextmanager
def whole(path: Path, called: str | None = None) -> Iterator[Path]:
    """Yield a temporary path for a file or directory, and rename it to `path` at the end.

    After an error `path` is unchanged. The temporary path has the target's file name and is in a
    directory of its own, so a library may write temporary files beside it. A symbolic link keeps
    pointing to its target, and an existing file keeps its permissions.

    Args:
        path: The target.
        called: The target's name in errors; its path if not given.

    Raises:
        NotWritten: if the disk is full or not writable.
    """
    what = called or path
    path = path.resolve() if path.is_symlink() else path
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
            if made.is_file() and path.is_file():
                shutil.copymode(path, made)
            _sync(made)
            _place(made, path, part / "before")
        except OSError as error:
            raise NotWritten(what, error) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
        lock.release()


def require_place(path: Path, *, directory: bool = False) -> None:
    """Raise an error early if `path` cannot be written.

    The check creates an unnamed file in the nearest existing directory, and leaves nothing behind.
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
    """Turn disk errors into `NotWritten`; other errors pass unchanged."""
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


def digest_once(path: Path) -> str:
    """Return the SHA-256 of a file; computed again only if its size or time of change differs."""
    about = path.stat()
    return _digest_of(path.resolve(), about.st_ino, about.st_size, about.st_mtime_ns)


@lru_cache(maxsize=256)
def _digest_of(path: Path, *_: int) -> str:
    return digest(path)


def require_regular(path: Path) -> None:
    """Raise an error for a directory, device or pipe, which could be read for ever."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} must be a regular file, got a directory, device or pipe")


def parse_json(content: bytes, where: str, *, unique: bool = False) -> Any:
    """Parse JSON from an untrusted file; `unique` rejects duplicate keys.

    Raises:
        ValueError: starting with `where`, for any malformed content.
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
        raise ValueError(f"duplicate key {twice[:80]!r}")
    return found


@contextmanager
def locked(path: Path, *, wait: bool = False, rank: int = 0) -> Iterator[None]:
    """Lock a file or directory against other processes; rank 0 of a job locks for all ranks.

    Raises:
        ValueError: if another process holds the lock and `wait` is false.
    """
    if rank > 0:
        yield
        return
    file = path / LOCK if path.is_dir() else path.with_name(f".{path.name}.lock")
    lock = FileLock(file, timeout=-1 if wait else 0, poll_interval=0.02)
    try:
        lock.acquire()
    except Timeout as error:
        raise ValueError(f"another process is at work in {path}") from error
    try:
        yield
    finally:
        file.unlink(missing_ok=True)  # before the release: waiting processes make a new file
        lock.release()


def sweep(folder: Path, name: str | None = None) -> None:
    """Remove parts left by killed processes in a folder: all, or those of one target."""
    pattern = "*" if name is None else glob.escape(name)
    for part in folder.glob(f".{pattern}.*.part"):
        try:
            with FileLock(part / LOCK, timeout=0):
                shutil.rmtree(part, ignore_errors=True)
        except (Timeout, OSError):
            continue  # still being written, another user's, or just finished


def _begin(path: Path) -> tuple[Path, BaseFileLock]:
    """Make a part and lock it; try again if another process sweeps it before it is locked."""
    while True:
        part = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent))
        lock = FileLock(part / LOCK, timeout=0)
        try:
            lock.acquire()
        except (Timeout, FileNotFoundError):
            continue
        except OSError:
            shutil.rmtree(part, ignore_errors=True)
            raise
        return part, lock


def _sync(made: Path) -> None:
    """Flush all files to disk before they are renamed."""
    assert made.exists(), f"nothing was written for {made.name}"
    for path in made.rglob("*") if made.is_dir() else [made]:
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


def _place(made: Path, path: Path, before: Path) -> None:
    """Rename to the target; an existing directory is moved away first."""
    if not (made.is_dir() and path.is_dir()):
        os.replace(made, path)
        return
    os.rename(path, before)
    try:
        os.rename(made, path)
    except OSError:
        os.rename(before, path)
        raise
