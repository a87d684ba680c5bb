"""What a step found, in numbers that add up over micro-batches and ranks."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from dsl.training.objective import Loss


@dataclass(frozen=True)
class Step:
    """What a step found."""

    loss: float
    parts: dict[str, float]
    tokens: int
    stopped: bool
    """Whether any rank was told to stop."""
    learned: Tensor | None = None
    """What the objective wants back."""


@dataclass(frozen=True)
class Tally:
    """Sums over the pieces of a batch, in numbers that add up over ranks."""

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
        """Write everything as one row of numbers, which another rank's can be added to."""
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
        """The loss of an average position; 0 if the objective counted none."""
        return self.sum / self.count if self.count else self.sum

    @property
    def averages(self) -> dict[str, float]:
        """The mean of every part that has any position."""
        return {name: value / count for name, (value, count) in self.parts.items() if count}
