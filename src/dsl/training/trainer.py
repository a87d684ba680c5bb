"""The training loop: accelerate carries the distribution, the step number carries the state.

Batches, noise, dropout and learning rate are functions of (seed, step, place in the global batch),
so a run that is killed and taken up again walks exactly the same way, on any number of ranks.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from dsl.streams import Streams, stream
from dsl.training.checkpoint import Checkpoints, flatten_optimizer, restore_optimizer
from dsl.training.optimizer import OptimizerConfig, average, optimizer
from dsl.types import Tokens


@dataclass(frozen=True)
class TrainerConfig:
    """How long and how a run goes."""

    steps: int = 1000
    batch: int = 64
    """Sequences in a step, over all ranks and accumulated micro-batches."""
    micro_batch: int | None = None
    """Sequences in one forward on one rank; the rank's whole share if not given."""
    seed: int = 1
    precision: Literal["float32", "bf16", "fp16"] = "float32"
    """What products are computed in; weights and sums stay float32."""
    compile: bool = False
    """Fuse the blocks of the network by torch.compile: slow to start, then faster."""
    validate_every: int = 500
    save_every: int = 500
    keep: int = 2
    log_every: int = 10

    def __post_init__(self) -> None:
        if min(self.steps, self.batch, self.validate_every, self.save_every, self.log_every) < 1:
            raise ValueError("steps, batch and all intervals of a run must be at least 1")


Batches = Callable[[int, range, int], Tokens]
"""(step, places in the global batch, global batch) to tokens."""
Validator = Callable[[Any], dict[str, float]]
"""Measures the averaged model; its 'loss' decides which checkpoint is the best."""


@dataclass
class Trainer:
    """A run: an objective, its data, and a directory."""

    objective: nn.Module
    """Takes tokens, streams, places and batch and returns a Loss; its `model` is trained."""
    batches: Batches
    config: TrainerConfig
    optimizer: OptimizerConfig
    folder: Path
    write_model: Callable[[Any, Path], None]
    """Writes a model so that it can be loaded on its own."""
    validator: Validator | None = None
    tell: Callable[[str], None] = lambda _: None
    on_step: Callable[[dict[str, Any]], None] = lambda _: None
    stopped: bool = field(default=False, init=False)

    def run(self) -> int:
        """Train to the last step, or until told to stop; return the step that was reached."""
        mixed = "no" if self.config.precision == "float32" else self.config.precision
        self.accelerator = Accelerator(cpu=not torch.cuda.is_available(), mixed_precision=mixed)
        if self.config.compile:
            _require_compiler()
        ranks, rank = self.accelerator.num_processes, self.accelerator.process_index
        if self.config.batch % ranks:
            raise ValueError(f"a batch of {self.config.batch} cannot be shared by {ranks} ranks")
        share = self.config.batch // ranks
        self.places = range(rank * share, (rank + 1) * share)
        inner = self.objective
        adam = optimizer(inner, self.optimizer)
        self.ema = AveragedModel(inner.model, avg_fn=average(self.optimizer.ema))  # type: ignore[arg-type]
        self.checkpoints = Checkpoints(self.folder / "checkpoints", self.config.keep)
        begin = self._restore(inner, adam)
        if self.config.compile:
            fuse(inner)
        self.forward, self.adam = self.accelerator.prepare(inner, adam)
        self.ema.to(self.accelerator.device)
        with self._signals():
            return self._loop(begin, inner)

    def _loop(self, begin: int, inner: nn.Module) -> int:
        total, started, tokens_seen = self.config.steps, time.monotonic(), 0
        validation: dict[str, float] = {}
        for step in range(begin, total):
            loss, parts, tokens = self._step(step)
            tokens_seen += tokens
            self.ema.update_parameters(inner.model)  # type: ignore[arg-type]
            done = step + 1
            if done % self.config.log_every == 0 or done == total:
                elapsed = time.monotonic() - started
                self.on_step(
                    {
                        "step": done,
                        "loss": loss,
                        "lr": self.optimizer.rate(step, total),
                        "tokens_per_second": tokens_seen / elapsed,
                        "eta": (total - done) * elapsed / (done - begin),
                        **parts,
                    }
                )
            if self.validator and (done % self.config.validate_every == 0 or done == total):
                validation = self.validator(self.ema.module)
                self.on_step({"step": done, "validation": validation})
            if done % self.config.save_every == 0 or done == total or self.stopped:
                self._save(done, inner, validation)
            if self.stopped:
                return done
        return total

    def _step(self, step: int) -> tuple[float, dict[str, float], int]:
        for group in self.adam.param_groups:
            group["lr"] = self.optimizer.rate(step, self.config.steps)
        self.adam.zero_grad(set_to_none=True)
        share = len(self.places)
        micro = self.config.micro_batch or share
        pieces = [self.places[i : i + micro] for i in range(0, share, micro)]
        total, seen = 0.0, 0
        parts: dict[str, tuple[float, float]] = {}
        for number, places in enumerate(pieces):
            tokens = self.batches(step, places, self.config.batch).to(self.accelerator.device)
            device = self.accelerator.device
            streams = Streams(
                tuple(stream(self.config.seed, step, i, device=device) for i in places)
            )
            # dropout draws from the global generator: give it a state that depends on the step
            torch.manual_seed(stream(self.config.seed, step, places[0], 1).initial_seed())
            last = number == len(pieces) - 1
            with self.accelerator.no_sync(self.forward) if not last else _nothing():
                loss = self.forward(tokens, streams, places, self.config.batch)
                self.accelerator.backward(loss.total * len(places) / share)
            total += float(loss.total.detach()) * len(places) / share
            seen += tokens.numel() * self.accelerator.num_processes
            for name, (value, count) in loss.parts.items():
                old = parts.get(name, (0.0, 0.0))
                parts[name] = (old[0] + float(value), old[1] + float(count))
        total = self._mean(total)
        if not math.isfinite(total):
            newest = self.checkpoints.newest(self.tell)
            where = f"the checkpoint of step {newest.step}" if newest else "no checkpoint yet"
            raise ValueError(
                f"the loss of step {step} is {total}; stopped, {where} is intact. "
                "A smaller learning rate or a longer warm-up usually helps"
            )
        self.accelerator.clip_grad_norm_(self.forward.parameters(), self.optimizer.clip)
        with self.accelerator.autocast():  # Muon's products follow the precision of the run
            self.adam.step()
        return total, {name: v / n for name, (v, n) in parts.items() if n}, seen

    def _mean(self, value: float) -> float:
        if self.accelerator.num_processes == 1:
            return value
        mean = self.accelerator.reduce(
            torch.tensor(value, device=self.accelerator.device), reduction="mean"
        )
        assert isinstance(mean, Tensor)
        return float(mean)

    def _save(self, step: int, inner: nn.Module, validation: dict[str, float]) -> None:
        self.accelerator.wait_for_everyone()
        if not self.accelerator.is_main_process:
            return
        tensors = {f"model.{k}": v for k, v in inner.model.state_dict().items()}  # type: ignore[union-attr]
        tensors |= {f"ema.{k}": v.clone() for k, v in self.ema.state_dict().items()}
        tensors |= flatten_optimizer(self.adam)
        about = {"validation": validation, "seed": self.config.seed, "batch": self.config.batch}
        self.checkpoints.save(
            step, tensors, about, lambda path: self.write_model(self.ema.module, path)
        )

    def _restore(self, inner: nn.Module, adam: torch.optim.Optimizer) -> int:
        found = self.checkpoints.newest(self.tell)
        if found is None:
            return 0
        tensors = found.tensors()
        inner.model.load_state_dict(_under("model.", tensors))  # type: ignore[union-attr]
        self.ema.load_state_dict(_under("ema.", tensors))
        restore_optimizer(adam, tensors)
        finished = found.step >= self.config.steps
        self.tell(f"{'already trained to' if finished else 'resumed from'} step {found.step}")
        return found.step

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Let the first interrupt finish its step and save; a second one interrupts."""

        def stop(number: int, _: FrameType | None) -> None:
            if self.stopped:
                raise KeyboardInterrupt
            self.stopped = True
            self.tell(f"{signal.Signals(number).name}: saving after this step")

        before = {n: signal.signal(n, stop) for n in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def fuse(objective: nn.Module) -> None:
    """Compile the blocks of the network in place: they are alike, so one compilation serves all."""
    for block in objective.model.backbone.blocks:  # type: ignore[union-attr]
        block.compile()


def _require_compiler() -> None:
    wanted = os.environ.get("CXX", "g++")
    if not any(map(shutil.which, (wanted, "g++", "clang++", "cl"))):
        raise ValueError(
            f"trainer.compile needs a C++ compiler, and {wanted} was not found: install one, "
            "or leave trainer.compile out"
        )


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
