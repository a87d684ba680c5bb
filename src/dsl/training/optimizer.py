"""Optimizers (AdamW and Muon), learning rates, and moving averages of the weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel


@dataclass(frozen=True)
class OptimizerConfig:
    """Settings of the optimizer; the defaults are MDLM's."""

    kind: Literal["adamw", "muon"] = "adamw"
    """muon uses Muon for the matrices of the blocks and AdamW for the rest, at the same rate."""
    lr: float = 3e-4
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    clip: float = 1.0
    """Gradient norm above which gradients are clipped."""
    warmup: int = 0
    """Steps of linear warm-up."""
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    """Shape of the learning rate from the warm-up to the last step."""
    final: float = 0.0
    """Final rate of cosine and linear, as a fraction of lr."""
    ema: float | tuple[float, ...] = 0.9999
    """Decay of the moving average of the weights after its warm-up. With several decays, the
    average with the lowest validation loss becomes the model."""

    def __post_init__(self) -> None:
        if not self.decays or len(set(self.decays)) < len(self.decays):
            raise ValueError(f"ema must be one number or distinct numbers, got {self.ema}")
        possible = all(0 <= decay < 1 for decay in self.decays)
        if not (self.lr > 0 and self.clip > 0 and self.warmup >= 0 and possible):
            raise ValueError(
                "an optimizer needs lr > 0, clip > 0, warmup >= 0 and ema in [0, 1), "
                f"got {self.lr}, {self.clip}, {self.warmup} and {self.ema}"
            )
        if not (0 <= self.beta1 < 1 and 0 <= self.beta2 < 1 and self.eps > 0):
            raise ValueError(
                "an optimizer needs beta1 and beta2 in [0, 1) and eps > 0, "
                f"got {self.beta1}, {self.beta2} and {self.eps}"
            )
        if not (self.weight_decay >= 0 and 0 <= self.final <= 1):
            raise ValueError(
                "an optimizer needs weight_decay >= 0 and final in [0, 1], "
                f"got {self.weight_decay} and {self.final}"
            )

    @property
    def decays(self) -> tuple[float, ...]:
        """The decays of all averages."""
        return self.ema if isinstance(self.ema, tuple) else (self.ema,)

    def rate(self, step: int, total: int) -> float:
        """Return the learning rate of a step; it has no state to restore."""
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        if self.schedule == "constant":
            return self.lr
        done = min(1.0, (step - self.warmup) / max(1, total - self.warmup))
        shape = (1 + math.cos(math.pi * done)) / 2 if self.schedule == "cosine" else 1 - done
        return self.lr * (self.final + (1 - self.final) * shape)


def optimizer(module: nn.Module, config: OptimizerConfig) -> torch.optim.AdamW:
    """Make the optimizer of all trainable parameters."""
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
    settings: dict[str, Any] = {
        "lr": config.lr,
        "betas": (config.beta1, config.beta2),
        "eps": config.eps,
        "weight_decay": config.weight_decay,
    }
    if config.kind == "adamw":
        return torch.optim.AdamW(trained.values(), **settings)
    turned = {name for name, p in trained.items() if p.ndim == 2 and _in_block(name)}
    groups: list[dict[str, Any]] = [
        {"params": [p for name, p in trained.items() if name not in turned]},
        {"params": [p for name, p in trained.items() if name in turned], "muon": True},
    ]
    return Muon(groups, **settings)


def _in_block(name: str) -> bool:
    """Whether a parameter belongs to a block and not to its adaLN modulation."""
    return ".blocks." in f".{name}" and "adaLN" not in name


class Muon(torch.optim.AdamW):
    """AdamW with Muon for groups marked `muon`: steps along the orthogonalised momentum.

    Steps are scaled to AdamW's typical root mean square of 0.2, so rates and decays mean the same
    for both. torch's own Muon always multiplies in bfloat16, which many CPUs lack; this one uses
    float32 or the type of autocast.
    """

    momentum = 0.95

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update the matrices, clear their gradients, and let AdamW update the rest."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for matrix in group["params"] if group.get("muon") else ():
                if matrix.grad is None:
                    continue
                state = self.state[matrix]
                if not state:  # AdamW expects a step count when it is restored
                    state |= {"step": torch.zeros(()), "momentum": torch.zeros_like(matrix)}
                state["step"] += 1
                mean = state["momentum"].lerp_(matrix.grad, 1 - self.momentum)
                nesterov = matrix.grad.lerp(mean, self.momentum)
                direction = orthogonal(nesterov, _precision(matrix.device.type))
                matrix.mul_(1 - group["lr"] * group["weight_decay"])
                size = 0.2 * math.sqrt(max(matrix.shape))
                matrix.add_(direction, alpha=-group["lr"] * size)
                matrix.grad = None
        super().step()
        return loss


def _precision(device: str) -> torch.dtype:
    """Return the type of autocast, or float32 without autocast."""
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else torch.float32


def orthogonal(
    matrix: Float[Tensor, "m n"], precision: torch.dtype = torch.float32
) -> Float[Tensor, "m n"]:
    """Move all singular values to 0.7 … 1.2 by five Newton-Schulz steps."""
    a, b, c = 3.4445, -4.7750, 2.0315  # the quintic of Jordan et al. (2024): steep at 0
    wide = matrix.float() if matrix.shape[0] <= matrix.shape[1] else matrix.float().T
    x = (wide / wide.norm().clamp(min=1e-7)).to(precision)
    for _ in range(5):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    made: Tensor = x if matrix.shape[0] <= matrix.shape[1] else x.T
    return made.to(matrix.dtype)


def average(decay: float) -> Callable[[Tensor, Tensor, Tensor | int], Tensor]:
    """Return an update function for torch's AveragedModel, with MDLM's warm-up of the decay.

    The decay after n updates is min(decay, (1 + n)/(10 + n)). A constant 0.9999 would keep most of
    the initial weights in a short run.
    """

    def update(mean: Tensor, new: Tensor, n: Tensor | int) -> Tensor:
        count = float(n)
        warm = min(decay, (1 + count) / (10 + count))
        return mean.lerp(new.to(mean.dtype), 1 - warm)

    return update


class Averages:
    """Moving averages of one network; `best` is the index of the best validated one."""

    def __init__(self, model: nn.Module, decays: tuple[float, ...]) -> None:
        self.decays = decays
        self.kept = [AveragedModel(model, avg_fn=average(decay)) for decay in decays]
        self.best = 0

    @property
    def module(self) -> nn.Module:
        """The best averaged network."""
        module: nn.Module = self.kept[self.best].module
        return module

    def to(self, device: torch.device) -> None:
        """Move all averages."""
        for each in self.kept:
            each.to(device)

    def update(self, model: nn.Module) -> None:
        """Update every average with the weights after a step."""
        for each in self.kept:
            each.update_parameters(model)

    def validate(self, validator: Callable[[Any], dict[str, float]]) -> dict[str, Any]:
        """Evaluate every average, choose the best, and return the entry for the log."""
        found = [validator(each.module) for each in self.kept]
        self.best = min(range(len(found)), key=lambda i: found[i]["loss"])
        event: dict[str, Any] = {"validation": found[self.best]}
        if len(found) > 1:
            named = {str(decay): each for decay, each in zip(self.decays, found, strict=True)}
            event |= {"ema": self.decays[self.best], "averages": named}
        return event

    def tensors(self) -> dict[str, Tensor]:
        """Return the states of all averages, each under its own prefix."""
        return {
            f"{prefix}{name}": tensor.clone()
            for prefix, each in zip(self._prefixes(), self.kept, strict=True)
            for name, tensor in each.state_dict().items()
        }

    def load(self, tensors: Mapping[str, Tensor], best: float | None) -> None:
        """Load states returned by `tensors`, and the best decay."""
        for prefix, each in zip(self._prefixes(), self.kept, strict=True):
            each.load_state_dict(under(prefix, tensors))
        self.best = self.decays.index(best) if best in self.decays else 0

    def _prefixes(self) -> list[str]:
        """Return a prefix per average; a single one keeps the name of older checkpoints."""
        return ["ema."] if len(self.kept) == 1 else [f"ema{i}." for i in range(len(self.kept))]


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names have a prefix, without the prefix."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
