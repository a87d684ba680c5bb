"""AdamW, its schedule, and the moving average of the weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class OptimizerConfig:
    """MDLM's optimizer by default."""

    lr: float = 3e-4
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    clip: float = 1.0
    """Largest norm of the gradient."""
    warmup: int = 0
    """Steps of linear warm-up."""
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    """What the rate does after the warm-up, until the last step."""
    final: float = 0.0
    """Where cosine and linear end, as a share of lr."""
    ema: float = 0.9999
    """Decay of the average of the weights, once it has warmed up."""

    def __post_init__(self) -> None:
        if not (self.lr > 0 and self.clip > 0 and self.warmup >= 0 and 0 <= self.ema < 1):
            raise ValueError(
                "an optimizer needs lr > 0, clip > 0, warmup >= 0 and ema in [0, 1), "
                f"got {self.lr}, {self.clip}, {self.warmup} and {self.ema}"
            )

    def rate(self, step: int, total: int) -> float:
        """Return the learning rate of a step: a function of it, so nothing has to be restored."""
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        if self.schedule == "constant":
            return self.lr
        done = min(1.0, (step - self.warmup) / max(1, total - self.warmup))
        shape = (1 + math.cos(math.pi * done)) / 2 if self.schedule == "cosine" else 1 - done
        return self.lr * (self.final + (1 - self.final) * shape)


def adamw(module: nn.Module, config: OptimizerConfig) -> torch.optim.AdamW:
    """Make the optimizer of the parameters that are trained."""
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return torch.optim.AdamW(
        trained,
        lr=config.lr,
        betas=(config.beta1, config.beta2),
        eps=config.eps,
        weight_decay=config.weight_decay,
    )


def average(decay: float) -> Callable[[Tensor, Tensor, Tensor | int], Tensor]:
    """Return the update of torch's AveragedModel: a decay that starts low.

    A constant .9999 would keep most of the initial weights in a short run; min(decay,
    (1 + n)/(10 + n)) is MDLM's.
    """

    def update(mean: Tensor, new: Tensor, n: Tensor | int) -> Tensor:
        count = float(n)
        warm = min(decay, (1 + count) / (10 + count))
        return mean.lerp(new.to(mean.dtype), 1 - warm)

    return update
