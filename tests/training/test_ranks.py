"""Ranks: however many processes share a batch, it is one and the same run."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from dsl.training.checkpoint import Checkpoints
from tests.training.conftest import TWO_RANKS, close, command, events, run, settings, shared

RUNS = {
    "plain": (),
    "dropout": ("model.dropout=0.3", "trainer.micro_batch=3"),
    "masked only": ("objective={masked_only: true}", "model.dropout=0.3", "trainer.micro_batch=1"),
    "learned SNRs": (
        "objective={draws: stratified, warp: {bins: 4, decay: 0.5}}",
        "optimizer.ema=[0.5, 0.9]",
        "trainer.micro_batch=3",
    ),
    "mdlm": ("objective=mdlm", "model.dropout=0.3", "trainer.micro_batch=5"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", RUNS)
def test_two_ranks_are_one_process_with_the_same_batch(
    case: str, tmp_path: Path, cache: Path
) -> None:
    """Weights, and every number of the log: loss, parts, validation."""
    changes = ("trainer.steps=24", "optimizer.eps=1e-4", "optimizer.warmup=0", *RUNS[case])
    whole = [change for change in changes if "micro_batch" not in change]
    run(command(tmp_path / "alone", cache, *settings(*whole)))
    run(shared(command(tmp_path / "shared", cache, *settings(*changes))))
    close(tmp_path / "shared", tmp_path / "alone")
    ours, theirs = (
        [event["validation"] for event in events(tmp_path / name) if "validation" in event]
        for name in ("shared", "alone")
    )
    assert len(ours) == len(theirs) > 0
    for mine, other in zip(ours, theirs, strict=True):
        assert mine == pytest.approx(other, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_signal_to_one_rank_stops_all_at_one_step(rank: str, tmp_path: Path, cache: Path) -> None:
    job = shared(command(tmp_path, cache, *settings("trainer.steps=100000")))
    process = subprocess.Popen(job, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    log = tmp_path / "log.jsonl"
    while not log.exists() or log.read_text().count("\n") < 4:
        assert process.poll() is None
        time.sleep(0.2)
    workers = psutil.Process(process.pid).children()
    (told,) = [worker for worker in workers if worker.environ().get("RANK") == rank]
    told.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=900)
    assert process.returncode == 0, err[-3000:]
    found = re.search(r"stopped at step (\d+); resume with: dsl train", out)
    newest = Checkpoints(tmp_path / "checkpoints").newest(lambda _: None)
    assert found is not None and newest is not None and newest.step == int(found[1])


SHARDED = """
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule, fully_shard
from dsl.models.config import ModelConfig
from dsl.models.dsl import DSLModel
from dsl.core.streams import Streams
from dsl.families.mixed_snr import MixedSNRObjective, MixedSNROptions

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
config = ModelConfig(7, codebook_dim=6, hidden_dim=16, cond_dim=4, n_blocks=2, n_heads=2)
tokens = torch.randint(7, (4, 5))

def objective():
    torch.manual_seed(1)
    model = DSLModel(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return MixedSNRObjective(model, MixedSNROptions())

plain = objective()
plain(tokens, Streams.derive(0, range(4)), range(4), 4).mean.backward()
wanted = {name: p.grad for name, p in plain.named_parameters()}

sharded = objective()
for block in sharded.model.backbone.blocks:
    fully_shard(block)
fully_shard(sharded)
assert isinstance(sharded, FSDPModule)
mine = range(2 * rank, 2 * rank + 2)
sharded(tokens[mine.start : mine.stop], Streams.derive(0, mine), mine, 4).mean.backward()
for name, parameter in sharded.named_parameters():
    scale = float(wanted[name].abs().max())
    near = dict(atol=1e-4 * scale, rtol=0)
    torch.testing.assert_close(parameter.grad.full_tensor(), wanted[name], **near)
dist.destroy_process_group()
print("the gradients agree")
"""


@pytest.mark.slow
def test_sharded_gradients_are_whole_gradients(tmp_path: Path) -> None:
    """FSDP2 on two gloo ranks: every gradient, gathered, is that of one process."""
    script = tmp_path / "sharded.py"
    script.write_text(SHARDED)
    job = [sys.executable, *TWO_RANKS, str(script)]
    done = subprocess.run(job, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
