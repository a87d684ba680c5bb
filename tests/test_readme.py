"""The README runs: so do the docs: Python blocks in order, in one namespace, and dsl commands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from dsl.cli.main import main

ROOT = Path(__file__).parent.parent
ELSEWHERE = ("mine", "SOURCE", "text8-prefix", "text8-tiny.yaml", "cyclic.yaml", "runs/")
"""Commands with these words need files or minutes: tests/training runs their like."""


@pytest.mark.parametrize("page", ["README.md", "docs/sampling.md", "docs/likelihood.md"])
def test_python_blocks_run(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    assert blocks
    namespace: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), namespace)
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/sampling.md",
        "docs/likelihood.md",
        "docs/training.md",
        "docs/evaluation.md",
    ],
)
def test_dsl_commands_run(
    page: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DSL_CACHE", str(tmp_path / "cache"))
    commands = re.findall(r"^dsl .*$", (ROOT / page).read_text(), flags=re.MULTILINE)
    assert commands
    for command in commands:
        if any(placeholder in command for placeholder in ELSEWHERE):
            continue
        assert main(shlex.split(command)[1:]) == 0, command
        captured = capsys.readouterr()
        assert captured.out or captured.err
