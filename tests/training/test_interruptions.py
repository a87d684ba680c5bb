"""Long runs in processes of their own: killed, told to stop, compiled, in half the digits."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch

from dsl.training.checkpoint import Checkpoints
from tests.training.conftest import command, events, run, settings, weights


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_is_the_same_run(tmp_path: Path, cache: Path) -> None:
    """Kill -9 at random moments, then resume: bit for bit the weights of an undisturbed run."""
    run(command(tmp_path / "whole", cache))
    luck = torch.Generator().manual_seed(0)
    for _ in range(6):
        process = subprocess.Popen(command(tmp_path / "killed", cache), stderr=subprocess.DEVNULL)
        time.sleep(3.0 + 3.0 * float(torch.rand(1, generator=luck)))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    run(command(tmp_path / "killed", cache))
    ours, theirs = weights(tmp_path / "killed"), weights(tmp_path / "whole")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def logged(out: Path) -> list[float]:
    return [event["loss"] for event in events(out) if "loss" in event]


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["dsl", "mdlm"])
def test_a_compiled_run_learns_what_a_plain_one_learns(
    objective: str, tmp_path: Path, cache: Path
) -> None:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    extra = settings("trainer.steps=12", f"objective={objective}")
    for name, compiled in (("plain", "false"), ("fused", "true")):
        run(command(tmp_path / name, cache, *extra, *settings(f"trainer.compile={compiled}")))
    assert logged(tmp_path / "fused") == pytest.approx(logged(tmp_path / "plain"), rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["dsl", "ar"])
def test_a_run_in_bfloat16_learns_what_a_plain_one_learns(
    objective: str, tmp_path: Path, cache: Path
) -> None:
    fixed = (f"objective={objective}", "optimizer.kind=muon", "trainer.steps=12")
    for precision in ("float32", "bf16"):
        changes = settings(*fixed, f"trainer.precision={precision}")
        run(command(tmp_path / precision, cache, *changes))
    coarse, exact = logged(tmp_path / "bf16"), logged(tmp_path / "float32")
    assert coarse == pytest.approx(exact, rel=0.03) and coarse != exact


@pytest.mark.slow
def test_a_signal_saves_and_says_how_to_go_on(tmp_path: Path, cache: Path) -> None:
    extra = settings("trainer.steps=100000")
    process = subprocess.Popen(
        command(tmp_path, cache, *extra), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    log = tmp_path / "log.jsonl"
    while not log.exists() or log.read_text().count("\n") < 4:
        time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate()
    assert process.returncode == 0
    assert "resume with: dsl train" in out and "SIGTERM: saving after this step" in err
    assert Checkpoints(tmp_path / "checkpoints").newest(lambda _: None) is not None
