"""What the code blocks of the pages tell a reader to type is typed here, at a smaller scale."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest

from dsl.cli.main import main

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
TUNED = "dsl train text8-tiny-finetune --init runs/mdlm-dsl"
SMALLER = {
    r"^torchrun --nproc-per-node \d+ -m ": "",
    r"\btext8-prefix\b": "python-docs",
    rf"^{TUNED}": f"{TUNED} --set trainer.batch=2 --set trainer.steps=2 --set data.validation=2 "
    "--set data.corpus=python-docs",
    rf"^(?!{TUNED})dsl train (\S+)": r"dsl train \1 --smoke",
    r" --init mdlm-owt": "",
    r"\btrainer\.steps=\d+": "trainer.steps=2",
    r"\bSOURCE OUT\b": "runs/mdlm/model OUT",
    r"(?<=^dsl sample )-n \d\d\d+": "-n 24",
    r"(?<=@)1024": "8",
    r"(?<=--limit )\d\d\d+": "4",
    r"(?<=--budget )\d\d+": "16",
    r"^dsl (evaluate|compare) (.*)": r"dsl \1 \2 --features none --oracle none",
    r"(?<=--length )128": "16",
    r"(?<=--steps )8 16 32( 64)?( 128)?": "1 2",
    r"^dsl compare (.*)": r"dsl compare \1 -n 4 --seeds-drawn 2",
}
"""What is changed so that no network, no judge, one process and few seconds are enough."""


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_says_what_it_is(page: Path) -> None:
    """So that none is passed over below."""
    opened = re.findall(r"^ *```(.*)$", page.read_text(), flags=re.MULTILINE)[::2]
    assert set(opened) <= {"bash", "python"}


def test_there_is_something_to_type() -> None:
    typed = sum(len("".join(blocks(page, "bash")).splitlines()) for page in PAGES)
    assert typed > 30
    assert sum(len(blocks(page, "python")) for page in PAGES) > 5
    assert EXAMPLES


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
        command = shlex.join(shlex.split(line, comments=True))
        for pattern, smaller in SMALLER.items():
            command = re.sub(pattern, smaller, command)
        if not command.startswith("dsl "):
            assert_known(command)
            continue
        status = main(shlex.split(command)[1:])
        captured = capsys.readouterr()
        if status and "It comes with the" in captured.err:
            pytest.skip(captured.err.strip())
        assert status == 0, f"{line}\n{captured.err}"
        assert captured.out or captured.err, line


def assert_known(command: str) -> None:
    """Whatever else is typed is a target of the Makefile, or enters the environment."""
    if command.startswith("make "):
        assert f"\n{command.split()[1]}:" in (ROOT / "Makefile").read_text(), command
    else:
        assert command.startswith(("pip install ", "source ", "git clone ", "cd ")), command


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_examples_run(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(script), run_name="__main__")
    printed = capsys.readouterr().out
    assert EXPECTED[script.stem] in printed


EXPECTED = {
    "doubtful_text": " the president of the united ",
    "paths_through_one_space": " 0.6   2.5   5.6  10.0  15.6  22.5  30.6  40.0 100.0",
    "which_is_likelier": " bits per letter  he lived in the city of london",
}
"""A line that each example prints."""
