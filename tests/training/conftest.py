"""The shortest of all runs, in this process or in one of its own, and what it leaves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from dsl.cli.main import main
from dsl.models.config import ModelConfig
from dsl.models.dsl import DSLModel
from dsl.training import recipe as recipes
from tests.conftest import perturbed

CYCLIC = recipes.RECIPES / "cyclic.yaml"
TWO_RANKS = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


@pytest.fixture
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.getbasetemp() / "cache"


def settings(*changes: str) -> list[str]:
    """Write changes of a recipe as the command line does."""
    return [word for change in changes for word in ("--set", change)]


def train(out: Path, cache: Path, *extra: str) -> int:
    """Train by the toy's recipe, cut short, in this process."""
    arguments = ["train", str(CYCLIC), "--smoke", "--out", str(out), "--cache", str(cache)]
    return main([*arguments, *extra])


def command(out: Path, cache: Path, *extra: str) -> list[str]:
    """Write the command of a run of 60 steps that is saved every 5."""
    longer = settings("trainer.steps=60", "trainer.save_every=5")
    return [
        sys.executable, "-m", "dsl", "train", str(CYCLIC), "--smoke", "--out", str(out),
        "--cache", str(cache), *longer, *extra,
    ]  # fmt: skip


def shared(job: list[str]) -> list[str]:
    """Let two processes share the batches of a run."""
    return [job[0], *TWO_RANKS, *job[1:]]


def run(job: list[str]) -> None:
    """Run a command to its end."""
    done = subprocess.run(job, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def weights(out: Path) -> dict[str, torch.Tensor]:
    """Read the model that a run left."""
    return load_file(out / "model" / "model.safetensors")


def events(out: Path) -> list[dict[str, Any]]:
    """Read the log of a run."""
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def close(ours: Path, theirs: Path, share: float = 1e-4) -> None:
    """Ask that two runs logged the same numbers and left the same weights, up to rounding."""
    left, right = ([e for e in events(out) if "loss" in e] for out in (ours, theirs))
    assert len(left) == len(right) > 0
    for one, other in zip(left, right, strict=True):
        timed = {"tokens_per_second", "eta"}
        assert one.keys() == other.keys()
        for name in one.keys() - timed:
            assert one[name] == pytest.approx(other[name], rel=share, abs=share), name
    mine, wanted = weights(ours), weights(theirs)
    assert mine.keys() == wanted.keys()
    for name, tensor in wanted.items():
        scale = max(1e-2, float(tensor.abs().max()))
        torch.testing.assert_close(mine[name], tensor, atol=share * scale, rtol=0, msg=name)


def small() -> DSLModel:
    """A model of one block, without dropout."""
    shape = ModelConfig(
        7, codebook_dim=6, hidden_dim=16, cond_dim=4, n_blocks=1, n_heads=2, dropout=0.0
    )
    return perturbed(shape)
