"""The suite is as large as it says."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.cases import CASES


def test_there_are_twenty_thousand_cases() -> None:
    """`fuzz` refuses to end before all of its cases are done."""
    assert sum(CASES.values()) >= 20_000


def test_every_file_has_its_cases() -> None:
    here = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
    assert set(CASES) == here - {"count"}
