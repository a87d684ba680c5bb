"""Everything the pages tell a reader to type is typed here, at a scale that takes seconds."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest

from dsl.cli.main import main

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SMALLER = {
    r"\btext8-prefix\b": "python-docs",
    r"^dsl train text8-tiny-finetune": "dsl train text8-tiny-finetune --set trainer.steps=2 "
    "--set trainer.batch=2 --set data.corpus=python-docs --set data.validation=2",
    r"^dsl train (?!text8-tiny-finetune)(\S+)": r"dsl train \1 --smoke",
    r"\btrainer\.steps=\d+": "trainer.steps=3",
    r"\bSOURCE OUT\b": "runs/mdlm/model OUT",
    r"(?<=^dsl sample )-n \d\d\d+": "-n 24",
    r"(?<=--limit )\d\d\d+": "4",
    r"(?<=--budget )\d\d+": "16",
    r"^dsl (evaluate|compare) (.*)": r"dsl \1 \2 --features none --oracle none",
    r"(?<=--steps )8 16 32 64( 128)?": "1 2",
    r"^dsl compare (.*)": r"dsl compare \1 -n 4 --seeds-drawn 2",
}
"""What is changed so that no network, no judge and no minutes are needed."""


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_blocks_run(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, object] = {}
    for block in blocks(page, "python"):
        exec(compile(block, page.name, "exec"), namespace)
        assert capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_run(
    page: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DSL_CACHE", str(tmp_path / "cache"))
    Path("mine.txt").write_text("it was the best of times it was the worst of times " * 200)
    for line in "".join(blocks(page, "bash")).replace("\\\n", " ").splitlines():
        command = line.partition("#")[0].strip()
        if not command.startswith("dsl "):
            assert_known(command)
            continue
        for pattern, smaller in SMALLER.items():
            command = re.sub(pattern, smaller, command)
        assert main(shlex.split(command)[1:]) == 0, f"{line}\n{capsys.readouterr().err}"
        captured = capsys.readouterr()
        assert captured.out or captured.err, line


def assert_known(command: str) -> None:
    """Whatever else is typed is a target of the Makefile, or begins something else than dsl."""
    if command.startswith("make "):
        assert f"\n{command.split()[1]}:" in (ROOT / "Makefile").read_text(), command
    else:
        assert command.startswith(("pip install ", "source ", "torchrun ", "git clone ", "cd "))


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.stem)
def test_examples_run(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(script), run_name="__main__")
    assert len(capsys.readouterr().out.splitlines()) > 1
