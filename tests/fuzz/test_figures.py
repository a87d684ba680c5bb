"""What figures are drawn from: traces, results of comparisons, logs of runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from dsl.apps.demo.charts import paths, read_trace
from dsl.apps.reproduce import curves
from dsl.cli.figure import _results
from tests.fuzz.cases import anything, dumped, fuzz, mutated, swapped

pytestmark = pytest.mark.slow

TRACE: list[Any] = [{"index": 0, "step": i, "snr": [0.0, 1.5, 100.0]} for i in range(3)]
RESULTS = {
    "rows": [{"model": "m", "sampler": "mdlm@T", "nfe": 8.0, "mauve": 0.5, "mauve_stderr": 0.1}],
    "held_out": {"mauve": {"mean": 0.9, "stderr": 0.1}},
}
LOG: list[Any] = [
    {"step": 10, "loss": 2.5},
    {"step": 10, "validation": {"loss": 2.0, "roar": 2.0, "roar_stderr": 0.1}},
]


def lines(records: Any) -> bytes:
    listed = records if isinstance(records, list) else [records]
    return "".join(json.dumps(record) + "\n" for record in listed).encode()


def test_a_trace_is_drawn_or_refused(tmp_path: Path) -> None:
    path, out = tmp_path / "trace.jsonl", tmp_path / "paths.svg"

    def read(content: bytes) -> None:
        path.write_bytes(content)
        paths({"it": read_trace(path)}, out)
        assert "<svg" in out.read_text()

    cases = st.one_of(mutated([lines(TRACE)]), swapped([TRACE]).map(lines), anything.map(lines))
    fuzz("figures", cases, read, [b"[" * 100_000 + b"\n"], share=0.4)


def test_results_are_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.json"

    def read(content: bytes) -> None:
        path.write_bytes(content)
        rows, held_out = _results(path)
        assert all(isinstance(row, dict) for row in rows) and isinstance(held_out, dict)

    cases = st.one_of(mutated([dumped(RESULTS)]), (swapped([RESULTS]) | anything).map(dumped))
    fuzz("figures", cases, read, [b"5", b"null", b'{"rows": 5, "held_out": {}}'], share=0.3)


def test_a_log_is_read_or_refused(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("trainer: {batch: 4}\ndata: {length: 8}\n")

    def read(content: bytes) -> None:
        (tmp_path / "log.jsonl").write_bytes(content)
        assert all(len(point) == 3 for curve in curves.read(tmp_path).values() for point in curve)

    cases = st.one_of(mutated([lines(LOG)]), swapped([LOG]).map(lines), anything.map(lines))
    fuzz("figures", cases, read, [b"", b"5\n"], share=0.3)
