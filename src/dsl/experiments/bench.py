"""Benchmarks of sampling and training, each a ratio of two things measured in one run."""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import torch
from torch import nn

from dsl import oracle
from dsl.baselines.mdlm import MdlmModel, MdlmObjective
from dsl.data.windows import Windows
from dsl.denoiser import Denoiser, Endpoints
from dsl.loading import load
from dsl.models.config import ModelConfig, small
from dsl.models.model import DSLModel
from dsl.presets import sampler
from dsl.sampling.ancestral import Ancestral
from dsl.sampling.sampler import last
from dsl.sampling.state import State
from dsl.streams import Streams, stream
from dsl.training.objective import Loss, MixedSNRObjective, ObjectiveConfig
from dsl.training.optimizer import OptimizerConfig
from dsl.training.trainer import Trainer, TrainerConfig, fuse
from dsl.types import Codebook, Mask, Noisy, Rows, Tokens


@dataclass(frozen=True)
class Speed:
    """A masked run with everything the design saves, against the plain loop."""

    steps: int
    forwards: int
    """Steps that reveal something, and so ask the denoiser."""
    states: int
    seconds_plain: float
    """Mean of one step: full converter, full head."""
    seconds_ours: float
    """Mean of one forward: endpoints looked up, head at the revealed rows."""
    ratio_step: float
    ratio_run: float
    """(steps + 1) plain forwards over the forwards we make."""
    stderr: float
    """Of ratio_run, over the states."""


@torch.no_grad()
def speed(
    *,
    length: int = 1024,
    vocab_size: int = 50_257,
    config: ModelConfig | None = None,
    states: int = 8,
    seed: int = 0,
) -> Iterator[str | Speed]:
    """Time the plain loop and ours at states spread along one MDLM run with T = L.

    The weights are random: no time depends on them. Progress is yielded as text.
    """
    torch.manual_seed(seed)
    model = DSLModel(config or small(vocab_size, model_length=length)).eval()
    visited = list(_revealing(length, vocab_size, seed))
    chosen = [visited[round(i * (len(visited) - 1) / (states - 1))] for i in range(states)]
    model.requires_grad_(False)
    model(chosen[-1][0], at=chosen[-1][1])  # warm up; fills the endpoint table
    plain, ours = [], []
    for number, (ends, at) in enumerate(chosen, 1):
        z = ends.z(model.codebook, model.snr_max)
        model(ends, at=at)  # tokens new to the table are paid once a run, not once a step
        began = time.perf_counter()
        full = model(z)
        middle = time.perf_counter()
        rows = model(ends, at=at)
        ended = time.perf_counter()
        torch.testing.assert_close(rows, full[at], atol=1e-4, rtol=1e-4)
        plain.append(middle - began)
        ours.append(ended - middle)
        yield f"state {number} of {states}: {plain[-1]:.2f} s plain, {ours[-1]:.2f} s ours"
    runs = [(length + 1) * a / (len(visited) * b) for a, b in zip(plain, ours, strict=True)]
    yield Speed(
        steps=length,
        forwards=len(visited),
        states=states,
        seconds_plain=fmean(plain),
        seconds_ours=fmean(ours),
        ratio_step=fmean(plain) / fmean(ours),
        ratio_run=(length + 1) * fmean(plain) / (len(visited) * fmean(ours)),
        stderr=stdev(runs) / len(runs) ** 0.5,
    )


def _revealing(length: int, vocab_size: int, seed: int) -> Iterator[tuple[Endpoints, Mask]]:
    """Walk an MDLM run with random tokens; yield each state that is asked about, and the rows."""
    before = State.blank(1, length)
    for state in Ancestral(length).steps(
        _Uniform(vocab_size), before, generator=Streams.derive(seed, [0])
    ):
        at = before.masked & ~state.masked
        if at.any():
            yield before.endpoints, at
        before = state


class _Uniform:
    """The denoiser that knows nothing: it costs nothing, and no reveal depends on its answer."""

    snr_max = 100.0

    def __init__(self, vocab_size: int) -> None:
        self.codebook: Codebook = torch.zeros(vocab_size, 1)

    def __call__(self, z: Noisy | Endpoints, /, *, at: Mask | None = None) -> Rows:
        assert at is not None
        return torch.zeros(int(at.sum()), self.codebook.shape[0])


@dataclass(frozen=True)
class Overhead:
    """What a sampler costs beside its denoiser calls."""

    sampler: str
    seconds: float
    seconds_denoising: float
    overhead: float
    """(seconds - seconds_denoising) / seconds_denoising."""


def overhead(name: str, *, b: int = 8, length: int = 128, seed: int = 0) -> Overhead:
    """Time a whole run and the denoiser calls inside it, with a character model of 5M weights."""
    torch.manual_seed(seed)
    config = ModelConfig(
        27, codebook_dim=26, hidden_dim=256, n_blocks=6, n_heads=4, model_length=length
    )
    timed = _Timed(DSLModel(config).eval().requires_grad_(False))
    start = State.blank(b, length)
    last(sampler("mdlm@2"), timed, start, generator=Streams.derive(seed, range(b)))  # warm up
    timed.seconds = 0.0
    began = time.perf_counter()
    last(sampler(name), timed, start, generator=Streams.derive(seed, range(b)))
    seconds = time.perf_counter() - began
    return Overhead(name, seconds, timed.seconds, seconds / timed.seconds - 1)


class _Timed:
    """A denoiser with a stop watch."""

    def __init__(self, denoiser: Denoiser) -> None:
        self.denoiser, self.seconds = denoiser, 0.0
        self.codebook, self.snr_max = denoiser.codebook.detach(), denoiser.snr_max

    def __call__(self, z: Noisy | Endpoints, /, *, at: Mask | None = None) -> Rows:
        began = time.perf_counter()
        logits = self.denoiser(z, at=at)
        self.seconds += time.perf_counter() - began
        return logits


@dataclass(frozen=True)
class Pace:
    """How long a path takes beside `mdlm@T`, for equally many texts by the bundled model."""

    sampler: str
    nfe: float
    """Mean denoiser calls a text."""
    characters_per_second: float
    time: float
    """Seconds over those of the reference, round by round."""
    stderr: float
    """Of the ratio, over the rounds."""


PACED = (
    "mdlm@64", "remdm-conf@64", "remdm-loop@64", "first-hitting@64", "dfm@64", "roar", "causal",
    "localize@64", "edm@32", "hybrid@16+32",
)  # fmt: skip
"""Paths of about the same number of steps; the first is what the others are measured by."""


def pace(
    names: Sequence[str] = PACED, *, b: int = 16, length: int = 128, rounds: int = 4, seed: int = 0
) -> Iterator[str | Pace]:
    """Draw with each path in turn, several rounds of all. Progress is yielded as text."""
    model = load()
    denoiser, start = model.denoiser, State.blank(b, length)
    last(sampler("mdlm@2"), denoiser, start, generator=Streams.derive(seed, range(b)))  # warm up
    seconds: dict[str, list[float]] = {name: [] for name in names}
    calls: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        yield f"round {number + 1} of {rounds}"
        texts = range(number * b, (number + 1) * b)
        for name in names:
            began = time.perf_counter()
            end = last(sampler(name), denoiser, start, generator=Streams.derive(seed, texts))
            seconds[name].append(time.perf_counter() - began)
            calls[name].append(float(end.nfe.double().mean()))
    for name in names:
        ratios = [a / b for a, b in zip(seconds[name], seconds[names[0]], strict=True)]
        error = stdev(ratios) / len(ratios) ** 0.5
        speed = b * length / fmean(seconds[name])
        yield Pace(name, fmean(calls[name]), speed, fmean(ratios), error)


@dataclass(frozen=True)
class Parallel:
    """How far a parallel path is from the truth at a number of steps."""

    sampler: str
    steps: int
    draws: int
    invalid: float
    """The share of sequences outside the support of the cyclic toy."""
    stderr: float
    nfe: float
    """Mean denoiser calls a sequence."""


def parallel(name: str, steps: int, *, draws: int = 20_000, seed: int = 0) -> Parallel:
    """Measure the error of revealing several tokens at once, where the truth is known."""
    toy = oracle.cyclic(7)
    walk = sampler(f"{name}@{steps}")
    end = last(walk, toy, State.blank(draws, toy.length), generator=stream(seed))
    share = float((toy.log_prob(end.tokens) == -torch.inf).double().mean())
    stderr = (share * (1 - share) / draws) ** 0.5
    return Parallel(name, steps, draws, share, stderr, float(end.nfe.double().mean()))


@dataclass(frozen=True)
class Training:
    """What a DSL training step costs beside an MDLM step on the same backbone."""

    vocab_size: int
    length: int
    batch: int
    seconds_dsl: float
    seconds_mdlm: float
    ratio: float
    stderr: float
    """Of the ratio, over the pairs of steps."""
    ratio_to_masked_rows: float
    """The same against our MDLM, which passes only masked positions through its head."""
    loader_ratio: float
    """How many times faster batches are made than DSL steps use them."""
    ratio_compiled: float | None
    """A DSL step fused by torch.compile over a plain one."""


class EveryRow(nn.Module):
    """MDLM's objective as published: the head at every position, the loss at masked ones."""

    def __init__(self, inner: MdlmObjective) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Compute all rows, then choose."""
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
    """Time forward and backward of the objectives in turn, on the same backbone.

    MDLM's step is timed as published and as ours, which is cheaper: on average half the rows pass
    its head. The batch is 16, or 4 for the larger network.
    """
    batch = batch or (16 if vocab_size <= 257 else 4)
    torch.manual_seed(seed)
    config = _shape(vocab_size, length)
    objectives: dict[str, nn.Module] = {
        "dsl": MixedSNRObjective(DSLModel(config), ObjectiveConfig()),
        "mdlm": EveryRow(MdlmObjective(MdlmModel(config))),
        "masked rows": MdlmObjective(MdlmModel(config)),
    }
    if compiled:
        objectives["compiled"] = MixedSNRObjective(DSLModel(config), ObjectiveConfig())
        fuse(objectives["compiled"])
    windows = Windows(np.random.default_rng(seed).integers(0, vocab_size, 10**6), length)
    seconds: dict[str, list[float]] = {name: [] for name in objectives}
    for step in range(pairs + 1):
        tokens = windows.batch(step, range(batch), batch)
        for name, objective in objectives.items():
            streams = Streams.derive(seed, range(batch))
            objective.zero_grad()
            began = time.perf_counter()
            objective(tokens, streams, range(batch), batch).total.backward()
            if step > 0:  # the first round warms up
                seconds[name].append(time.perf_counter() - began)
    began = time.perf_counter()
    for step in range(50):
        windows.batch(step, range(batch), batch)
    loading = (time.perf_counter() - began) / 50
    ours, theirs = seconds["dsl"], seconds["mdlm"]
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    return Training(
        vocab_size,
        length,
        batch,
        fmean(ours),
        fmean(theirs),
        fmean(ours) / fmean(theirs),
        stdev(ratios) / len(ratios) ** 0.5,
        fmean(ours) / fmean(seconds["masked rows"]),
        fmean(ours) / loading,
        fmean(seconds["compiled"]) / fmean(ours) if compiled else None,
    )


@dataclass(frozen=True)
class Memory:
    """What fine-tuning needs at its worst."""

    vocab_size: int
    length: int
    batch: int
    parameters: int
    steps: int
    peak_gigabytes: float
    """Of resident memory, of the whole process."""


def memory(*, vocab_size: int = 50_257, length: int = 1024, batch: int = 1) -> Memory:
    """Take two steps of the real trainer in float32: weights, gradients, AdamW, average."""
    torch.manual_seed(0)
    objective = MixedSNRObjective(DSLModel(_shape(vocab_size, length)), ObjectiveConfig())
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
