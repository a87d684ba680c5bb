from __future__ import annotations

import platform
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import torch

import dsl
from dsl.cli.main import VERBS, main


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dsl", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_version_and_help() -> None:
    assert run("--version").stdout == f"dsl {dsl.__version__}, torch {torch.__version__}\n"
    help_text = run("--help").stdout
    assert all(verb in help_text for verb in VERBS)
    assert run().stdout == help_text


def test_help_does_not_import_torch() -> None:
    """What keeps it fast: nothing heavy is imported to describe the commands."""
    code = (
        "import sys; from dsl.cli.main import main; main(['--help']); print('torch' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.stdout.endswith("False\n")


def test_an_unknown_command_is_refused() -> None:
    answer = run("demmo")
    assert answer.returncode == 2
    assert answer.stderr == "dsl: 'demmo' is not a command; did you mean 'demo'?\n"
    assert "expected one of calibrate, " in run("qqqq").stderr
    assert answer.stdout == ""


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_describes_itself(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with suppress(SystemExit):
        assert main([verb, "--help"]) == 0
    assert f"dsl {verb}" in capsys.readouterr().out


def test_the_toy_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "toy", "--draws", "300", "--steps", "100", "--size", "5"]) == 0
    shown = capsys.readouterr().out
    assert "ABCDE" in shown
    rows = [line.split("│") for line in shown.splitlines() if "anything else" in line]
    assert int(rows[0][2]) <= 3


def test_a_mistake_on_the_command_line_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "toy", "--size", "1"]) == 1
    assert capsys.readouterr().err == "dsl reproduce: --size must lie in 2 … 26, got 1\n"
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", "toy", "--size", "many"])
    assert stop.value.code == 2
    assert "'many'" in capsys.readouterr().err


def test_an_error_of_the_library_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: object) -> None:
        raise FileNotFoundError("no checkpoint directory at 'x'")

    monkeypatch.setattr("dsl.cli.demo.main", fails)
    assert main(["demo"]) == 1
    assert capsys.readouterr().err == "dsl demo: no checkpoint directory at 'x'\n"


def test_a_shell_completes_commands_and_options(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--tyro-print-completion", "bash"])
    assert not ended.value.code
    script = tmp_path / "dsl.bash"
    script.write_text(capsys.readouterr().out)
    for words, expected in (("sa", "sample"), ("sample --sam", "--sampler")):
        typed = f"dsl {words}".split()
        session = (
            f"source {script}; COMP_WORDS=({' '.join(typed)}); COMP_CWORD={len(typed) - 1}; "
            f"COMP_LINE='{' '.join(typed)}'; COMP_POINT=${{#COMP_LINE}}; "
            f"_tyro_dsl dsl '{typed[-1]}' '{typed[-2]}'; echo ${{COMPREPLY[@]}}"
        )
        answer = subprocess.run(["bash", "-c", session], capture_output=True, text=True)
        assert answer.stdout.split() == [expected], answer.stderr


def test_freed_memory_is_kept_by_glibc_and_left_alone_elsewhere() -> None:
    code = "from dsl.cli.main import keep_freed_memory; print(keep_freed_memory())"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.stdout.strip() == str(platform.libc_ver()[0] == "glibc")
