"""Cost of training: time relative to MDLM, and memory."""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from torch import nn

from dsl.core import Endpoints, Mask, Rows, Streams, Tokens
from dsl.data import Windows
from dsl.families import Loss, MdlmModel, MdlmObjective, MdlmOptions, MdlmShape, Objective
from dsl.families.mixed_snr import MixedSNRObjective, MixedSNROptions
from dsl.likelihoods import Mean
from dsl.models import DSLModel, ModelConfig
from dsl.training import Utilisation
from dsl.training.optimizer import OptimizerConfig
from dsl.training.rehearsal import Rehearsal
from dsl.training.trainer import Trainer, TrainerConfig, fuse
from dsl.training.utilisation import Meter


@dataclass(frozen=True)
class Training:
    """Time of a DSL training step relative to an MDLM step on the same backbone."""

    vocab_size: int
    length: int
    batch: int
    seconds_dsl: float
    seconds_mdlm: float
    ratio: float
    stderr: float
    """Standard error of the ratio over pairs of steps."""
    ratio_to_masked_rows: float
    """The ratio to our MDLM, which applies its head to masked positions only."""
    loader_ratio: float
    """Time of a DSL step over the time to load a batch."""
    ratio_compiled: float | None
    """Time of a DSL step with torch.compile over a plain one."""
    flops_per_token: float
    """Operations of the matrix products of a DSL step, forward and backward."""
    flops_per_second: float
    product_flops_per_second: float
    """Speed of a plain float32 matrix product of the backbone's width."""
    utilisation: float
    """Operations per second of the DSL step over those of the plain product."""


class EveryRow(nn.Module):
    """MDLM's objective as published: the head at all positions, the loss at masked ones."""

    def __init__(self, inner: MdlmObjective) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Compute all rows, then select the masked ones."""
        whole = self.inner.model
        self.inner.model = _Chosen(whole)  # type: ignore[assignment]
        try:
            loss: Loss = self.inner(tokens, streams, places, batch)
        finally:
            self.inner.model = whole
        return loss


class _Chosen(nn.Module):
    def __init__(self, model: MdlmModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, z: Endpoints, /, *, at: Mask) -> Rows:
        rows: Rows = self.model(z)
        return rows[at]


def training(
    *,
    vocab_size: int = 27,
    length: int = 128,
    batch: int | None = None,
    pairs: int = 16,
    compiled: bool = False,
    seed: int = 0,
) -> Training:
    """Time forward and backward passes of the objectives alternately, on the same backbone.

    MDLM's step is timed as published and in our version, which applies its head to half the rows on
    average. The batch is 16, or 4 for the larger network.
    """
    batch = batch or (16 if vocab_size <= 257 else 4)
    torch.manual_seed(seed)
    config = _shape(vocab_size, length)
    masked = MdlmShape(vocab_size, cond_dim=config.cond_dim, model_length=length, **config.blocks)
    plain = MixedSNRObjective(DSLModel(config), MixedSNROptions())
    objectives: dict[str, nn.Module] = {
        "dsl": plain,
        "mdlm": EveryRow(MdlmObjective(MdlmModel(masked), MdlmOptions())),
        "masked rows": MdlmObjective(MdlmModel(masked), MdlmOptions()),
    }
    if compiled:
        objectives["compiled"] = MixedSNRObjective(DSLModel(config), MixedSNROptions())
        fuse(objectives["compiled"])
    windows = Windows(np.random.default_rng(seed).integers(0, vocab_size, 10**6), length)
    seconds: dict[str, list[float]] = {name: [] for name in objectives}
    for step in range(pairs + 1):
        tokens = windows.batch(step, range(batch), batch)
        for name, objective in objectives.items():
            streams = Streams.derive(seed, range(batch))
            objective.zero_grad()
            began = time.perf_counter()
            objective(tokens, streams, range(batch), batch).mean.backward()
            if step > 0:  # the first round is for warming up
                seconds[name].append(time.perf_counter() - began)
    ours, theirs = seconds["dsl"], seconds["mdlm"]
    reached = _utilisation(plain, windows, batch, seed, fmean(ours))
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    return Training(
        vocab_size,
        length,
        batch,
        fmean(ours),
        fmean(theirs),
        fmean(ours) / fmean(theirs),
        Mean.of(ratios).stderr,
        fmean(ours) / fmean(seconds["masked rows"]),
        fmean(ours) / _loading(windows, batch),
        fmean(seconds["compiled"]) / fmean(ours) if compiled else None,
        reached.flops_per_token,
        reached.flops_per_second,
        reached.product_flops_per_second,
        reached.share,
    )


def _loading(windows: Windows, batch: int, times: int = 50) -> float:
    """Return the mean time to load a batch."""
    began = time.perf_counter()
    for step in range(times):
        windows.batch(step, range(batch), batch)
    return (time.perf_counter() - began) / times


def _utilisation(
    objective: Objective, windows: Windows, batch: int, seed: int, seconds: float
) -> Utilisation:
    """Compare a step with a plain matrix product."""
    rehearsal = Rehearsal.of(
        objective, windows.batch, batch=batch, most=batch, seed=seed, device=torch.device("cpu")
    )
    meter = Meter.of(rehearsal, "float32")
    meter.add(batch * windows.length, seconds)
    found = meter.found()
    assert found is not None  # a backbone is made of products
    return found


@dataclass(frozen=True)
class Memory:
    """Peak memory of training."""

    vocab_size: int
    length: int
    batch: int
    parameters: int
    steps: int
    peak_gigabytes: float
    """Resident memory of the whole process."""


def memory(*, vocab_size: int = 50_257, length: int = 1024, batch: int = 1) -> Memory:
    """Run two steps of the trainer in float32: weights, gradients, AdamW, weight average."""
    torch.manual_seed(0)
    objective = MixedSNRObjective(DSLModel(_shape(vocab_size, length)), MixedSNROptions())
    windows = Windows(np.random.default_rng(0).integers(0, vocab_size, 10**6), length)
    config = TrainerConfig(steps=2, batch=batch, save_every=2)
    with tempfile.TemporaryDirectory() as folder:
        Trainer(
            objective, windows.batch, config, OptimizerConfig(), Path(folder), lambda *_: None
        ).run()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    scale = 2**30 if sys.platform == "darwin" else 2**20
    weights = sum(p.numel() for p in objective.parameters())
    return Memory(vocab_size, length, batch, weights, config.steps, peak / scale)


def _shape(vocab_size: int, length: int) -> ModelConfig:
    """text8-tiny's backbone for small vocabularies, the paper's for large ones."""
    if vocab_size > 257:
        return ModelConfig(vocab_size, dropout=0.0, model_length=length)
    return ModelConfig(
        vocab_size,
        codebook_dim=vocab_size - 1,
        hidden_dim=192,
        cond_dim=32,
        n_blocks=6,
        n_heads=6,
        dropout=0.0,
        model_length=length,
    )
