"""Files of samples: read whole, and taken up by another run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from dsl.generation.samples import Store, read
from tests.fuzz.cases import anything, fuzz, mutated, swapped

pytestmark = pytest.mark.slow

ABOUT = {"model": "oracle:cyclic-7", "weights": None, "sampler": {"kind": "Reveal"}, "length": 7,
         "seed": 0, "given": "[7]"}  # fmt: skip
SAMPLES = [
    {"index": i, "text": "ABCDEFG", "tokens": [0, 1, 2, 3, 4, 5, 6], "nfe": 7, "seconds": 0.5}
    for i in range(3)
]
LINES: list[Any] = [{"about": ABOUT}, *SAMPLES]


def lines(records: list[Any]) -> bytes:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode(
        "utf-8", errors="replace"
    )


FOUND = [
    lines([LINES[0], {**SAMPLES[0], "index": -1}]),
    lines([LINES[0], SAMPLES[0], SAMPLES[0]]),
    lines([LINES[0], {**SAMPLES[0], "tokens": 5}]),
    lines([LINES[0], {**SAMPLES[0], "seconds": float("nan")}]),
    lines([{"about": []}]),
    lines([LINES[0]]) + b"[" * 100_000 + b"\n",
    lines([LINES[0], {**SAMPLES[0], "x" * 5000: 1}]),
]


def test_samples_are_read_or_refused_and_never_lost(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"

    def take(content: bytes) -> None:
        path.write_bytes(content)
        try:
            about, samples = read(path)
            assert isinstance(about, dict)
            assert len({sample.index for sample in samples}) == len(samples)
            with Store.open(path, about) as store:
                store.merge()
            assert read(path) == (about, sorted(samples, key=lambda sample: sample.index))
        except ValueError:
            assert path.read_bytes() == content
            raise
        finally:
            assert list(tmp_path.iterdir()) == [path]

    structured = st.one_of(swapped([LINES]), st.lists(anything, max_size=4)).map(
        lambda records: lines(records if isinstance(records, list) else [records])
    )
    fuzz("samples", st.one_of(mutated([lines(LINES)]), structured), take, FOUND)
