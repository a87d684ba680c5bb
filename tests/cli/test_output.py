"""Terminals without the paper's letters, full disks and odd bytes: one line, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dsl.cli.main import VERBS, main
from dsl.families.dsl import DSL

TOY = ("reproduce", "toy", "--draws", "300", "--steps", "50", "--size", "4")
FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="a device that is always full")


def run(*arguments: str | bytes, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "dsl", *arguments]
    return subprocess.run(command, capture_output=True, env=os.environ | environment)


def run_full(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "dsl", *arguments]
    with FULL.open("wb") as full:
        return subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, env=os.environ | environment
        )


@pytest.mark.slow
def test_an_ascii_terminal_gets_the_numbers_spelled(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("ABCDEFG\n" * 4)
    job = ("likelihood", "oracle:cyclic-7", str(text), "--budget", "4", "--limit", "2")
    for arguments, expected in ((TOY, b"anything else"), (job, b"+/-")):
        answer = run(*arguments, PYTHONIOENCODING="ascii")
        assert answer.returncode == 0, answer.stderr
        assert answer.stdout.isascii() and expected in answer.stdout


def test_a_mistake_is_told_on_an_ascii_terminal() -> None:
    answer = run("reproduce", "toy", "--size", "1", PYTHONIOENCODING="ascii")
    assert answer.returncode == 1
    assert answer.stderr == b"dsl reproduce: --size must lie in 2 ... 26, got 1\n"


@needs_full
@pytest.mark.parametrize(
    ("arguments", "unbuffered"),
    [
        (("--help",), ""),
        (("--help",), "1"),
        (("--version",), ""),
        ((), "1"),
        (TOY, "1"),
        (("reproduce", "toy", "--help"), ""),
        (("reproduce", "toy", "--help"), "1"),
    ],
)
def test_what_cannot_be_written_is_one_line(arguments: tuple[str, ...], unbuffered: str) -> None:
    answer = run_full(*arguments, PYTHONUNBUFFERED=unbuffered)
    assert answer.returncode == 1
    assert answer.stderr.count(b"\n") == 1 and b"No space left" in answer.stderr


@needs_full
def test_no_verb_succeeds_without_its_help_being_written() -> None:
    """In one process, whose output goes where nothing fits."""
    code = (
        "import sys\nfrom dsl.cli.main import main\nfor verb in sys.argv[1:]:\n"
        "    sys.stdout = open('/dev/full', 'w')\n"
        "    try: status = main([verb, '--help'])\n"
        "    except SystemExit as stop: status = stop.code\n"
        "    print(verb, status, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *VERBS], capture_output=True, text=True)
    lines = done.stderr.splitlines()
    assert lines[1::2] == [f"{verb} 1" for verb in VERBS]
    assert all("No space left" in line for line in lines[::2])


def test_a_reader_that_leaves_is_no_error() -> None:
    command = [sys.executable, "-m", "dsl", "--help"]
    read, write = os.pipe()
    os.close(read)
    try:
        answer = subprocess.run(command, stdout=write, stderr=subprocess.PIPE)
    finally:
        os.close(write)
    assert answer.returncode == 141 and answer.stderr == b""


@pytest.mark.parametrize(
    "arguments", [(b"t\xffy",), (b"reproduce", b"toy", b"--size", b"\xc3\x28")]
)
def test_bytes_that_are_no_text_are_refused(arguments: tuple[bytes, ...]) -> None:
    answer = run(*arguments)
    assert answer.returncode == 2 and answer.stdout == b""
    assert answer.stderr.count(b"\n") == 1 and b"is not valid UTF-8" in answer.stderr


def test_missing_memory_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("dsl.cli.demo.main", fails)
    assert main(["demo"]) == 1
    assert capsys.readouterr().err == "dsl demo: not enough memory; use a smaller batch\n"


def test_closed_streams_are_no_error() -> None:
    command = f"{sys.executable} -m dsl --version"
    for closed in (">&-", "2>&-", "<&- >&- 2>&-"):
        found = subprocess.run(f"{command} {closed}", shell=True, capture_output=True)
        assert (found.returncode, found.stderr) == (0, b""), closed


def test_an_interrupt_before_the_command_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("dsl.cli.main.answer", interrupted)
    assert main(["sample"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_a_file_that_never_ends_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dsl.cli.drawing.MOST_BYTES", 1000)
    assert main(["sample", "--model", "oracle:two-bit", "--prompts", "/dev/zero"]) == 1
    assert "/dev/zero must have at most 1,000 bytes" in capsys.readouterr().err


def test_names_and_sizes_are_checked_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fetched(*_: object) -> None:
        raise AssertionError("npm was called")

    monkeypatch.setattr("dsl.apps.stories.corpus.fetch", fetched)
    job = ["evaluate", "divergence", "stories-tiny", "no-such-corpus", "--cache", str(tmp_path)]
    assert main(job) == 1
    assert "no-such-corpus" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"model\.vocab_size must be the tokenizer's 27, got 3"):
        DSL.shape(27, 16, {"vocab_size": 3})
