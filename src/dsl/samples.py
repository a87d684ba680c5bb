"""samples.jsonl: generated sequences on disk, with a first line that says how they were made.

A file that was cut short is taken up again: a torn last line is dropped, what is whole is kept.
Several processes write a part each, and the first of them joins the parts at the end.
"""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

IDENTITY = ("model", "weights", "sampler", "length", "seed", "given")
"""What must agree for two files to belong to one job."""


@dataclass(frozen=True)
class Sample:
    """One generated sequence."""

    index: int
    """Its place in the job; with the seed, it determines the text."""
    text: str
    tokens: list[int]
    nfe: int
    """Denoiser calls made for this sequence."""
    seconds: float
    """Wall time of its batch, divided by the sequences in it."""


def read(path: Path) -> tuple[dict[str, Any], list[Sample]]:
    """Read a samples file: how it was made, and what is in it."""
    about, samples = _scan(path)
    if about is None:
        raise ValueError(f"{path} is not a samples file: its first line must describe the job")
    return about, samples


def _scan(path: Path) -> tuple[dict[str, Any] | None, list[Sample]]:
    """Read what is whole: a last line without its end was torn off by a crash, and is dropped."""
    about: dict[str, Any] | None = None
    samples = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        try:
            record = json.loads(line)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path}, line {number}, is not JSON: {error}") from error
        try:
            if about is None:
                about = dict(record["about"])
            else:
                samples.append(Sample(**record))
        except (TypeError, KeyError, ValueError) as error:
            shown = line[:80].decode(errors="replace")
            raise ValueError(f"{path}, line {number}, is not a sample: {shown}") from error
    return about, samples


@dataclass
class Store:
    """A samples file that is being written; in memory only, if it has no path."""

    path: Path | None
    about: dict[str, Any]
    rank: int = 0
    ranks: int = 1
    samples: dict[int, Sample] = field(default_factory=dict)
    _file: TextIO | None = None

    @classmethod
    def open(
        cls,
        path: Path | None,
        about: dict[str, Any],
        *,
        overwrite: bool = False,
        rank: int = 0,
        ranks: int = 1,
    ) -> Store:
        """Take up a file of the same job, or begin one; refuse a file of another job."""
        store = cls(path, about, rank, ranks)
        if path is None:
            return store
        for part in store.parts():
            if overwrite:
                if rank == 0:
                    part.unlink()
                continue
            if part != path and _scan(part)[0] is None:
                continue  # a part that was killed before its first line was whole
            found, samples = read(part)
            differs = [key for key in IDENTITY if found.get(key) != about.get(key)]
            if differs:
                raise ValueError(
                    f"{part} holds another job: its {', '.join(differs)} "
                    f"differ{'s' if len(differs) == 1 else ''}. "
                    "Choose another file, or pass --overwrite"
                )
            store.samples |= {sample.index: sample for sample in samples}
        return store

    @property
    def done(self) -> set[int]:
        """The sequences that need not be drawn again."""
        return set(self.samples)

    def parts(self) -> list[Path]:
        """List the files of this job that exist."""
        assert self.path is not None
        shards = self.path.parent.glob(f"{glob.escape(self.path.name)}.*-of-*")
        return [path for path in (self.path, *sorted(shards)) if path.exists()]

    def __enter__(self) -> Store:
        """Begin a file of this process's own, so that no two processes write to one."""
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._shard.open("w", encoding="utf-8")
            self._write({"about": self.about})
            self._file.flush()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()
        if kind is not None and self.ranks == 1:
            self.merge()  # with other ranks still writing, their parts wait for the next run

    def add(self, samples: Iterable[Sample]) -> None:
        """Keep samples, and see them on disk before going on."""
        for sample in samples:
            self.samples[sample.index] = sample
            self._write(asdict(sample))
        if self._file is not None:
            self._file.flush()

    def merge(self) -> None:
        """Join all parts into one file in the order of the indices."""
        if self.path is None or self.rank > 0:
            return
        for part in self.parts():
            if part != self.path:
                self.samples |= {sample.index: sample for sample in _scan(part)[1]}
        whole = self.path.with_name(f"{self.path.name}.part")
        with whole.open("w", encoding="utf-8") as file:
            lines: Sequence[dict[str, Any]] = [
                {"about": self.about},
                *(asdict(self.samples[index]) for index in sorted(self.samples)),
            ]
            file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        shards = [part for part in self.parts() if part != self.path]
        os.replace(whole, self.path)
        for shard in shards:
            shard.unlink()

    @property
    def _shard(self) -> Path:
        assert self.path is not None
        name = f"{self.path.name}.{self.rank}-of-{self.ranks}"
        shard = self.path.with_name(name)
        attempt = 0
        while shard.exists():  # what an interrupted run left; it is joined at the end
            attempt += 1
            shard = self.path.with_name(f"{self.path.name}.{self.rank}.{attempt}-of-{self.ranks}")
        return shard

    def _write(self, record: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(record, ensure_ascii=False) + "\n")
