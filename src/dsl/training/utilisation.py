"""Utilisation: operations per second of a run relative to a plain matrix product."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import torch

from dsl.training.rehearsal import Rehearsal

MEASURED = 0.1
"""Seconds for which the plain product is repeated."""


@dataclass(frozen=True)
class Utilisation:
    """Speed of a run, and its fraction of the speed of a plain matrix product."""

    tokens_per_second: float
    """Over all ranks, without validation and checkpoints."""
    flops_per_token: float
    """Matrix products of the objective, forward and backward."""
    flops_per_second: float
    product_flops_per_second: float
    """Of a plain product of the run's width and precision, measured before the first step."""
    share: float
    """flops_per_second / product_flops_per_second."""
    width: int
    precision: str

    @property
    def line(self) -> str:
        """A one-line summary."""
        return (
            f"{self.tokens_per_second:,.0f} tokens/s, {self.flops_per_second / 1e9:.3g} GFLOP/s: "
            f"{self.share:.0%} of a plain {self.precision} product of width {self.width}"
        )


class Meter:
    """Counts tokens and seconds; reports nothing if an objective has no matrix products."""

    def __init__(self, flops_per_token: float, product: float, width: int, precision: str) -> None:
        self.flops_per_token, self.product = flops_per_token, product
        self.width, self.precision = width, precision
        self.steps, self.tokens, self.seconds = 0, 0.0, 0.0

    @classmethod
    def of(cls, rehearsal: Rehearsal, precision: str, ranks: int = 1) -> Meter:
        """Count the operations per token and measure the speed of a plain product."""
        flops, width = rehearsal.flops_per_token(), rehearsal.width()
        if flops == 0 or width == 0:
            return cls(0.0, 0.0, width, precision)
        rows = max(width, rehearsal.tokens.numel())
        rate = product_rate(rows, width, precision, rehearsal.tokens.device)
        return cls(flops, ranks * rate, width, precision)

    def add(self, tokens: int, seconds: float) -> None:
        """Add a step; the first, a warm-up, is dropped when the second comes."""
        if self.steps == 1:
            self.tokens, self.seconds = 0.0, 0.0
        self.steps += 1
        self.tokens += tokens
        self.seconds += seconds

    def found(self) -> Utilisation | None:
        """Return the utilisation, or None without steps or matrix products."""
        if not (self.steps and self.flops_per_token and self.seconds > 0):
            return None
        rate = self.tokens / self.seconds
        flops = rate * self.flops_per_token
        return Utilisation(
            rate, self.flops_per_token, flops, self.product, flops / self.product,
            self.width, self.precision,
        )  # fmt: skip

    def event(self, step: int) -> dict[str, Any] | None:
        """Return the utilisation as an entry of the log."""
        found = self.found()
        return None if found is None else {"step": step, "utilisation": asdict(found)}


def product_rate(rows: int, width: int, precision: str, device: torch.device) -> float:
    """Return the operations per second of a (rows x width) times (width x width) product."""
    kinds = {"bf16": torch.bfloat16, "fp16": torch.float16}
    kind = kinds.get(precision, torch.float32)
    a = torch.ones(rows, width, dtype=kind, device=device)
    b = torch.ones(width, width, dtype=kind, device=device)
    out = a @ b
    _finished(device)
    times, began, spent = 0, time.perf_counter(), 0.0
    while spent < MEASURED:
        torch.mm(a, b, out=out)
        _finished(device)
        times += 1
        spent = time.perf_counter() - began
    return 2.0 * rows * width * width * times / spent


def _finished(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
