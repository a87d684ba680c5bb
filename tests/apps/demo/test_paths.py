from __future__ import annotations

import re
from pathlib import Path

import pytest

from dsl.apps.demo.svg import shade
from dsl.cli.main import main


def colours(tmp_path: Path, sampler: str) -> set[str]:
    trace, out = tmp_path / f"{sampler}.jsonl", tmp_path / "paths.svg"
    job = ["sample", "-n", "2", "--model", "oracle:cyclic-7", "--sampler", sampler]
    assert main([*job, "--trace", str(trace)]) == 0
    assert main(["reproduce", "figure", "paths", str(trace), "--out", str(out)]) == 0
    return set(re.findall(r'fill="(#\w{6})"', out.read_text()))


def test_masked_paths_jump_and_continuous_ones_pass_through(tmp_path: Path) -> None:
    ends = {shade(0.0), shade(1.0)}
    assert colours(tmp_path, "mdlm@4") == ends
    assert colours(tmp_path, "localize@9") > ends


@pytest.mark.parametrize(
    "content, message",
    [("", "is empty"), ("{]", "line 1, is not JSON"), ('{"snr": [1]}', "no SNRs")],
)
def test_what_is_no_trace_is_refused(
    content: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text(content)
    assert main(["reproduce", "figure", "paths", str(trace), "--out", str(tmp_path / "p.svg")]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "p.svg").exists()
