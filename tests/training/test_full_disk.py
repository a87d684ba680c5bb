"""A full disk is one line, and costs nothing that was there before."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from dsl.cli.main import main
from tests.training.conftest import CYCLIC, events, settings, train, weights

TALKATIVE = settings("trainer.log_every=1", "trainer.save_every=12", "trainer.validate_every=12")


def limited(size: int) -> Callable[[], None]:
    """No file may grow beyond so many bytes, as if the disk were full there."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return limit


def refused(verb: str, *arguments: str, size: int) -> None:
    """Ask that a command fails for want of room, and says so in one line."""
    job = [sys.executable, "-m", "dsl", verb, *arguments]
    done = subprocess.run(job, capture_output=True, text=True, preexec_fn=limited(size))
    assert done.returncode == 1, done.stderr[-3000:]
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"dsl {verb}: ") and "could not be written (" in last
    assert "File too large" in last, last
    assert sum(line.startswith("dsl ") for line in done.stderr.splitlines()) == 1


def hidden(folder: Path) -> list[Path]:
    return [path for path in folder.rglob(".*") if path.exists()]


@pytest.mark.parametrize(
    "size, changes",
    [
        pytest.param(64, [], id="what it is made of", marks=pytest.mark.slow),
        pytest.param(1_000, TALKATIVE, id="the log", marks=pytest.mark.slow),
        pytest.param(200_000, [], id="the first checkpoint", marks=pytest.mark.slow),
    ],
)
def test_a_run_goes_on_when_there_is_room_again(
    size: int, changes: list[str], tmp_path: Path, cache: Path
) -> None:
    assert train(tmp_path / "steady", cache, *changes) == 0
    out = tmp_path / "run"
    job = [str(CYCLIC), "--smoke", "--out", str(out), "--cache", str(cache), *changes]
    refused("train", *job, size=size)
    assert not hidden(out)
    assert train(out, cache, *changes) == 0
    ours, theirs = weights(out), weights(tmp_path / "steady")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert [e["step"] for e in events(out) if "validation" in e][-1] == 12


@pytest.mark.parametrize("verb", ["convert mdlm text8-tiny-mdlm", "convert float16 text8-tiny-ar"])
@pytest.mark.slow
def test_a_conversion_can_be_asked_for_again(verb: str, tmp_path: Path) -> None:
    name, *arguments = verb.split()
    out = tmp_path / "out"
    refused(name, *arguments, str(out), size=100_000)
    assert not out.exists() or not list(out.iterdir())
    assert main([name, *arguments, str(out)]) == 0


@pytest.mark.slow
def test_an_export_can_be_asked_for_again(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="the extra 'transformers' is not installed")
    out = tmp_path / "out"
    refused("export", "text8-tiny", str(out), size=100_000)
    assert not out.exists() or not list(out.iterdir())
    assert main(["export", "text8-tiny", str(out)]) == 0
