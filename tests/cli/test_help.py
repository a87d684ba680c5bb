"""Help and tables that can be read in a terminal of 80 columns."""

from __future__ import annotations

import pytest

from benchmarks import __main__ as bench
from dsl.cli.main import VERBS, main


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_fits_the_terminal(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    try:
        status: object = main([verb, "--help"] if verb else ["--help"])
    except SystemExit as leaving:
        status = leaving.code
    assert status in (0, None)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 4
    assert max(map(len, lines)) <= 80, max(lines, key=len)


def test_the_columns_of_a_benchmark_keep_their_names(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    fields = ("vocab_size", "length", "batch", "seconds_dsl", "seconds_mdlm", "ratio", "stderr",
              "ratio_to_masked_rows", "loader_ratio", "ratio_compiled")  # fmt: skip
    row: dict[str, object] = dict.fromkeys(fields, 1.0)
    bench.show([row], as_json=False)
    out = capsys.readouterr().out
    assert all(field.replace("_", " ") in out for field in fields) and "…" not in out
    bench.show([row, row], as_json=False)
    words = capsys.readouterr().out.split()
    assert {"vocab", "size", "length", "masked"} <= set(words) and "…" not in "".join(words)
