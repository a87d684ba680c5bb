"""The training loop, distributed by accelerate.

Batches, noise, dropout and learning rate are functions of (seed, step, place in the global batch),
so a resumed run repeats an uninterrupted one exactly, on any number of ranks.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from dsl._util.processes import Process, this_process
from dsl.core.types import Tokens
from dsl.families.objective import Loss, Objective
from dsl.training.checkpoint import Checkpoints, flatten_optimizer, restore_optimizer
from dsl.training.optimizer import Averages, OptimizerConfig, optimizer, under
from dsl.training.precision import Precision, settle
from dsl.training.rehearsal import Rehearsal, item_noise
from dsl.training.utilisation import Meter


def fuse(model: nn.Module) -> None:
    """Compile the blocks of a network in place; they share one compilation."""
    for name, module in model.named_modules():
        if name.rpartition(".")[2] == "blocks" and isinstance(module, nn.ModuleList):
            for block in module:
                block.compile()


def require_compiler() -> None:
    """Raise an error if there is no C++ compiler."""
    wanted = os.environ.get("CXX", "g++")
    if not any(map(shutil.which, (wanted, "g++", "clang++", "cl"))):
        raise ValueError(
            f"trainer.compile needs a C++ compiler, and {wanted} was not found: install one, "
            "or set trainer.compile=false"
        )


@dataclass(frozen=True)
class Step:
    """The result of a step, summed over ranks."""

    loss: float
    parts: dict[str, float]
    tokens: int
    stopped: bool
    """Whether any rank received a stop signal."""


@dataclass(frozen=True)
class Tally:
    """Sums over micro-batches, which can be added over ranks."""

    sum: float = 0.0
    count: float = 0.0
    tokens: float = 0.0
    stopped: float = 0.0
    parts: dict[str, tuple[float, float]] = field(default_factory=dict)
    learned: Tensor | None = None

    def plus(self, loss: Loss, tokens: int) -> Tally:
        """Add the losses of a micro-batch."""
        parts = dict(self.parts)
        for name, (value, count) in loss.parts.items():
            old = parts.get(name, (0.0, 0.0))
            parts[name] = (old[0] + float(value), old[1] + float(count))
        total, counted = self.sum + float(loss.sum.detach()), self.count + float(loss.count)
        learned = self.learned
        if loss.learned is not None:
            more = loss.learned.detach().double()
            learned = more if learned is None else learned + more
        return Tally(total, counted, self.tokens + tokens, self.stopped, parts, learned)

    def packed(self) -> Tensor:
        """Return all sums as one vector, to be added over ranks."""
        flat = [self.sum, self.count, self.tokens, self.stopped]
        flat += [number for name in sorted(self.parts) for number in self.parts[name]]
        flat += [] if self.learned is None else self.learned.tolist()
        return torch.tensor(flat, dtype=torch.float64)

    def unpacked(self, row: Tensor) -> Tally:
        """Read a row that has this tally's names."""
        total, count, tokens, stopped, *rest = row.tolist()
        names = sorted(self.parts)
        pairs = zip(rest[0 : 2 * len(names) : 2], rest[1 : 2 * len(names) : 2], strict=True)
        learned = None if self.learned is None else row[4 + 2 * len(names) :]
        return Tally(total, count, tokens, stopped, dict(zip(names, pairs, strict=True)), learned)

    @property
    def mean(self) -> float:
        """The mean loss per position; 0 without positions."""
        return self.sum / self.count if self.count else self.sum

    @property
    def averages(self) -> dict[str, float]:
        """The mean of every part that has positions."""
        return {name: value / count for name, (value, count) in self.parts.items() if count}


MOST_SEQUENCES = 1_000_000
"""The largest batch; larger values are typing errors."""


@dataclass(frozen=True)
class TrainerConfig:
    """Length, batch size and schedule of a run."""

    steps: int = 1000
    batch: int = 64
    """Sequences in a step, over all ranks and accumulated micro-batches."""
    micro_batch: int | None = None
    """Sequences in one forward pass on one rank; the rank's whole share if not given."""
    seed: int = 1
    precision: Precision = "float32"
    """What products are computed in; weights and sums stay float32. auto measures a few steps in
    float32 and bf16 when the run begins, and keeps to the faster."""
    compile: bool = False
    """Fuse the blocks of the network by torch.compile: slow to start, then faster."""
    validate_every: int = 500
    save_every: int = 500
    keep: int = 2
    log_every: int = 10

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "micro_batch", "validate_every", "save_every", "keep",
                     "log_every"):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"trainer.{name} must be at least 1, got {value}")
        if self.seed < 0:
            raise ValueError(f"trainer.seed must be at least 0, got {self.seed}")
        if self.batch > MOST_SEQUENCES:
            raise ValueError(
                f"trainer.batch must be at most {MOST_SEQUENCES:,}, got {self.batch:,}"
            )


Batches = Callable[[int, range, int], Tokens]
"""(step, places in the global batch, global batch) to tokens."""
Validator = Callable[[Any], dict[str, float]]
"""Evaluates the averaged model; the lowest 'loss' marks the best checkpoint."""


@dataclass
class Trainer:
    """Trains an objective on batches and writes checkpoints to a directory."""

    objective: Objective
    batches: Batches
    config: TrainerConfig
    optimizer: OptimizerConfig
    folder: Path
    write_model: Callable[[Any, Path], None]
    """Writes a model as a checkpoint directory."""
    validator: Validator | None = None
    tell: Callable[[str], None] = lambda _: None
    on_step: Callable[[dict[str, Any]], None] = lambda _: None
    process: Process = field(default_factory=this_process)
    stopped: bool = field(default=False, init=False)

    def run(self) -> int:
        """Train to the last step or a stop signal; return the number of completed steps."""
        # bf16 uses autocast only, because accelerate allows one precision per process
        mixed = "fp16" if self.config.precision == "fp16" else "no"
        self.accelerator = Accelerator(cpu=self.process.without_gpu, mixed_precision=mixed)
        if self.config.compile:
            require_compiler()
        rank, ranks = self.process.rank, self.process.count
        if self.config.batch % ranks:
            raise ValueError(
                f"trainer.batch must be a multiple of the {ranks} ranks, got {self.config.batch}"
            )
        share = self.config.batch // ranks
        self.places = range(rank * share, (rank + 1) * share)
        inner = self.objective
        adam = optimizer(inner, self.optimizer)
        self.averages = Averages(inner.model, self.optimizer.decays)
        self.checkpoints = Checkpoints(self.folder / "checkpoints", self.config.keep)
        begin = self._restore(inner, adam)
        if begin < self.config.steps:
            self._rehearse(inner)
        if self.config.compile:
            fuse(inner.model)
        self.forward, self.adam = self.accelerator.prepare(inner, adam)
        self.averages.to(self.accelerator.device)
        with self._signals():
            return self._loop(begin, inner)

    def _rehearse(self, inner: Objective) -> None:
        """Choose the precision and measure the cost of a step, before the first one."""
        config, most = self.config, self.config.micro_batch or len(self.places)
        rehearsal = Rehearsal.of(
            inner, self.batches, batch=config.batch, most=most, seed=config.seed,
            device=self.accelerator.device,
        )  # fmt: skip
        chosen = self.process.agree(lambda: settle(config.precision, self.folder, rehearsal))
        if chosen.said:
            self.tell(chosen.said)
        self.bf16 = chosen.precision == "bf16"
        self.meter = Meter.of(rehearsal, chosen.precision, self.process.count)

    def _autocast(self) -> AbstractContextManager[Any]:
        kind = self.accelerator.device.type
        return torch.autocast(kind, torch.bfloat16) if self.bf16 else self.accelerator.autocast()

    def _loop(self, begin: int, inner: Objective) -> int:
        total, started, tokens_seen = self.config.steps, time.monotonic(), 0
        validation: dict[str, float] = {}
        for step in range(begin, total):
            stepping = time.monotonic()
            found = self._step(step)
            tokens_seen += found.tokens
            self.averages.update(inner.model)
            self.meter.add(found.tokens, time.monotonic() - stepping)
            done = step + 1
            if done % self.config.log_every == 0 or done == total:
                elapsed = time.monotonic() - started
                self.on_step(
                    {
                        "step": done,
                        "loss": found.loss,
                        "lr": self.optimizer.rate(step, total),
                        "tokens_per_second": tokens_seen / elapsed,
                        "eta": (total - done) * elapsed / (done - begin),
                        **found.parts,
                    }
                )
            if self.validator and (done % self.config.validate_every == 0 or done == total):
                event = self.averages.validate(self.validator)
                validation = event["validation"]
                self.on_step({"step": done, **event})
            if done % self.config.save_every == 0 or done == total or found.stopped:
                self._save(done, inner, validation)
            if (done == total or found.stopped) and (reached := self.meter.event(done)):
                self.on_step(reached)
            if found.stopped:
                return done
        return total

    def _step(self, step: int) -> Step:
        """Take one optimizer step; it does not depend on how the batch is split."""
        for group in self.adam.param_groups:
            group["lr"] = self.optimizer.rate(step, self.config.steps)
        self.adam.zero_grad(set_to_none=True)
        self.objective.begin(step / self.config.steps)
        share = len(self.places)
        micro = self.config.micro_batch or share
        pieces = [self.places[i : i + micro] for i in range(0, share, micro)]
        tally = Tally()
        expected = 0.0
        for number, places in enumerate(pieces):
            tokens = self.batches(step, places, self.config.batch).to(self.accelerator.device)
            expected = float(self.config.batch * tokens.shape[1])
            last = number == len(pieces) - 1
            with nullcontext() if last else self.accelerator.no_sync(self.forward):
                loss = self._forward(step, places, tokens)
                # gradients are averaged over ranks, but must be summed
                self.accelerator.backward(loss.sum * (self.process.count / expected))
            tally = tally.plus(loss, tokens.numel())
        whole = self._reduced(tally)
        self._require_finite(step, whole.mean)
        if 0 < whole.count != expected:  # the objective skipped positions
            for parameter in self.forward.parameters():
                if parameter.grad is not None:
                    parameter.grad.mul_(expected / whole.count)
        self.accelerator.clip_grad_norm_(self.forward.parameters(), self.optimizer.clip)
        with self._autocast():  # Muon multiplies in the precision of the run
            self.adam.step()
        if whole.learned is not None:
            self.objective.learn(whole.learned)
        return Step(whole.mean, whole.averages, int(whole.tokens), whole.stopped > 0)

    def _forward(self, step: int, places: range, tokens: Tokens) -> Loss:
        """Compute the loss, with noise and dropout of every item from its own stream."""
        device, seed = self.accelerator.device, self.config.seed
        streams = item_noise(self.objective, seed, step, places, device)
        with self._autocast():
            loss: Loss = self.forward(tokens, streams, places, self.config.batch)
        return loss

    def _reduced(self, tally: Tally) -> Tally:
        """Sum over ranks, including whether any rank received a stop signal."""
        tally = replace(tally, stopped=float(self.stopped))
        if self.process.count == 1:
            return tally
        added = self.accelerator.reduce(tally.packed().to(self.accelerator.device), "sum")
        assert isinstance(added, Tensor)
        return tally.unpacked(added)

    def _require_finite(self, step: int, loss: float) -> None:
        if math.isfinite(loss):
            return
        newest = self.checkpoints.newest(self.tell)
        where = f"the checkpoint of step {newest.step}" if newest else "no checkpoint yet"
        raise ValueError(
            f"the loss of step {step} is {loss}; stopped, {where} is intact. "
            "A smaller learning rate or a longer warm-up usually helps"
        )

    def _save(self, step: int, inner: Objective, validation: dict[str, float]) -> None:
        self.process.wait()
        if self.process.rank > 0:
            return
        tensors = {f"model.{k}": v for k, v in inner.model.state_dict().items()}
        tensors |= {f"objective.{k}": v for k, v in inner.own().items()}
        tensors |= self.averages.tensors()
        tensors |= flatten_optimizer(self.adam)
        about = {"validation": validation, "seed": self.config.seed, "batch": self.config.batch}
        about["ema"] = self.averages.decays[self.averages.best]
        self.checkpoints.save(
            step, tensors, about, lambda path: self.write_model(self.averages.module, path)
        )

    def _restore(self, inner: Objective, adam: torch.optim.Optimizer) -> int:
        found = self.checkpoints.newest(self.tell)
        if found is None:
            return 0
        tensors = found.tensors()
        inner.model.load_state_dict(under("model.", tensors))
        inner.load_state_dict(under("objective.", tensors), strict=False)
        self.averages.load(tensors, found.about.get("ema"))
        restore_optimizer(adam, tensors)
        finished = found.step >= self.config.steps
        self.tell(f"{'already trained to' if finished else 'resumed from'} step {found.step}")
        return found.step

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Finish the step and save on the first interrupt; stop at once on the second.

        Only the main thread can handle signals; other threads leave them to the caller.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

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
