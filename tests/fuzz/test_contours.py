"""Contours of one's own: times and SNRs as JSON."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import strategies as st

from dsl.core.path import Tabulated
from tests.fuzz.cases import anything, dumped, fuzz, mutated, swapped

pytestmark = pytest.mark.slow

VALID = [
    {"times": [0, 0.5, 1], "snr": [[0, 0], [1, 2.5], [20, 20]]},
    {"times": [0, 1], "snr": [[0, 0], [1, 1]]},
]
FOUND = [
    b'{"times": [0, 1e-310, 1], "snr": [[0, 0], [1, 1], [2, 2]]}',
    b'{"times": [0, 1], "snr": [[0, 0], [1e300, 1]]}',
    b'{"times": [0, 1], "snr": ' + b"[" * 900 + b"]" * 900 + b"}",
    b'{"times": [0, 1], "snr": [[0, 0], [1, 1' + b"0" * 400 + b"]]}",
    b"[" * 100_000,
]


def test_a_contour_is_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "contour.json"

    def read(content: bytes) -> None:
        path.write_bytes(content)
        contour = Tabulated.read(path, 2)
        snr, slope = contour(torch.linspace(0, 1, 9, dtype=torch.float64))
        assert snr.isfinite().all() and slope.isfinite().all()
        assert (snr >= 0).all() and (slope >= 0).all()

    valid = [dumped(data) for data in VALID]
    structured = (swapped(VALID) | anything).map(dumped)
    fuzz("contours", st.one_of(mutated(valid), structured), read, FOUND)
