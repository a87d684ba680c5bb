"""samples.jsonl: generated sequences, after a first line that describes the request.

An interrupted file is completed; a partial last line is dropped. Each process writes a part of its
own, and the first process joins the parts at the end.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from dsl._util.files import locked, parse_json, reported, whole

IDENTITY = ("model", "weights", "sampler", "length", "seed", "given")
"""Fields that must be equal for two files to belong to one request."""


@dataclass(frozen=True)
class Sample:
    """One generated sequence."""

    index: int
    """Its place in the request; with the seed, it determines the text."""
    text: str
    tokens: list[int]
    nfe: int
    """Denoiser calls made for this sequence."""
    seconds: float
    """Wall time of its batch, divided by the number of sequences."""


def read(path: Path) -> tuple[dict[str, Any], list[Sample]]:
    """Return the description and the samples of a file."""
    about, samples = _scan(path)
    if about is None:
        raise ValueError(f"{path} is not a samples file: its first line must describe the job")
    return about, samples


def _scan(path: Path) -> tuple[dict[str, Any] | None, list[Sample]]:
    """Read all complete lines; a last line without a newline was cut off by a crash."""
    about: dict[str, Any] | None = None
    samples: dict[int, Sample] = {}
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        where = f"{path}, line {number}"
        record = parse_json(line, f"{where},", unique=True)
        if about is None:
            about = _about(record, where)
            continue
        sample = _sample(record, where)
        if sample.index in samples:
            raise ValueError(f"{where}, repeats the index {sample.index} of an earlier line")
        samples[sample.index] = sample
    return about, list(samples.values())


def _about(record: Any, where: str) -> dict[str, Any]:
    about = record.get("about") if isinstance(record, dict) else None
    if not isinstance(about, dict) or len(record) > 1:
        raise ValueError(f'{where}, must be {{"about": {{…}}}}, got {_shown(record)}')
    return about


def _sample(record: Any, where: str) -> Sample:
    names = [field.name for field in fields(Sample)]
    if not isinstance(record, dict) or sorted(record) != sorted(names):
        raise ValueError(
            f"{where}, is not a sample: expected the keys {', '.join(names)}, got {_shown(record)}"
        )
    tokens = record["tokens"]
    expected = {
        "index": (_count(record["index"]), "a whole number from 0"),
        "text": (isinstance(record["text"], str), "text"),
        "tokens": (isinstance(tokens, list) and all(map(_count, tokens)), "a list of token ids"),
        "nfe": (_count(record["nfe"]), "a whole number from 0"),
        "seconds": (_seconds(record["seconds"]), "a number from 0"),
    }
    for name, (fits, kind) in expected.items():
        if not fits:
            raise ValueError(f"{where}: {name!r} must be {kind}, got {_shown(record[name])}")
    return Sample(**record | {"seconds": float(record["seconds"])})


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _seconds(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < 2**63  # false for NaN


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:80]}…"


@dataclass
class Store:
    """A samples file that is being written; without a path, samples stay in memory."""

    path: Path | None
    about: dict[str, Any]
    rank: int = 0
    ranks: int = 1
    samples: dict[int, Sample] = field(default_factory=dict)
    _file: TextIO | None = None
    _held: ExitStack = field(default_factory=ExitStack)

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
        """Open or create the file; a file of another request is an error.

        Rank 0 locks the file for all ranks until it is merged, so a second command is rejected.
        """
        store = cls(path, about, rank, ranks)
        if path is None:
            return store
        path.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as held:
            held.enter_context(locked(path, rank=rank))
            store._read(overwrite)
            store._held = held.pop_all()
        return store

    def _read(self, overwrite: bool) -> None:
        for part in self.parts():
            if overwrite:
                if self.rank == 0:
                    part.unlink()
                continue
            if part != self.path and _scan(part)[0] is None:
                continue  # the process was killed before it had written its first line
            found, samples = read(part)
            differs = [key for key in IDENTITY if found.get(key) != self.about.get(key)]
            if differs:
                raise ValueError(
                    f"{part} holds another request: its {', '.join(differs)} "
                    f"differ{'s' if len(differs) == 1 else ''}. "
                    "Choose another file, or pass --overwrite"
                )
            self.samples |= {sample.index: sample for sample in samples}

    @property
    def done(self) -> set[int]:
        """Indices of the sequences that are stored."""
        return set(self.samples)

    def parts(self) -> list[Path]:
        """List the existing files of this request."""
        assert self.path is not None
        shards = self.path.parent.glob(f"{glob.escape(self.path.name)}.*-of-*")
        return [path for path in (self.path, *sorted(shards)) if path.exists()]

    def __enter__(self) -> Store:
        """Open a part that only this process writes to."""
        if self.path is not None:
            self._file = self._shard.open("w", encoding="utf-8")
            self._write({"about": self.about})
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            with reported(self.path):
                self._file.close()
        if kind is not None:
            if self.ranks == 1:
                self.merge()  # other ranks may still write: the next run merges their parts
            self._held.close()

    def add(self, samples: Iterable[Sample]) -> None:
        """Store samples and flush them to disk."""
        for sample in samples:
            self.samples[sample.index] = sample
            self._write(asdict(sample))

    def merge(self) -> None:
        """Join all parts into one file, sorted by index, and release its lock."""
        if self.path is None or self.rank > 0:
            return
        with self._held:
            shards = [part for part in self.parts() if part != self.path]
            for shard in shards:
                self.samples |= {sample.index: sample for sample in _scan(shard)[1]}
            lines: Sequence[dict[str, Any]] = [
                {"about": self.about},
                *(asdict(self.samples[index]) for index in sorted(self.samples)),
            ]
            with whole(self.path) as part, part.open("w", encoding="utf-8") as file:
                file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
            for shard in shards:
                shard.unlink()

    @property
    def _shard(self) -> Path:
        assert self.path is not None
        name = f"{self.path.name}.{self.rank}-of-{self.ranks}"
        shard = self.path.with_name(name)
        attempt = 0
        while shard.exists():  # left by an interrupted run; merge() will join it
            attempt += 1
            shard = self.path.with_name(f"{self.path.name}.{self.rank}.{attempt}-of-{self.ranks}")
        return shard

    def _write(self, record: dict[str, Any]) -> None:
        if self._file is not None:
            with reported(self.path):
                self._file.write(json.dumps(record, ensure_ascii=False) + "\n")
                self._file.flush()
