"""Moving averages of the weights, one for each decay: the one that validates best is the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from dsl.training.optimizer import average


class Averages:
    """Averages of one network; the first is the best until a validation finds another."""

    def __init__(self, model: nn.Module, decays: tuple[float, ...]) -> None:
        self.decays = decays
        self.kept = [AveragedModel(model, avg_fn=average(decay)) for decay in decays]
        self.best = 0

    @property
    def module(self) -> nn.Module:
        """The averaged network."""
        module: nn.Module = self.kept[self.best].module
        return module

    def to(self, device: torch.device) -> None:
        """Move all averages."""
        for each in self.kept:
            each.to(device)

    def update(self, model: nn.Module) -> None:
        """Take the weights after a step into every average."""
        for each in self.kept:
            each.update_parameters(model)

    def validate(self, validator: Callable[[Any], dict[str, float]]) -> dict[str, Any]:
        """Measure every average, choose the best, and return what the log says of it."""
        found = [validator(each.module) for each in self.kept]
        self.best = min(range(len(found)), key=lambda i: found[i]["loss"])
        event: dict[str, Any] = {"validation": found[self.best]}
        if len(found) > 1:
            named = {str(decay): each for decay, each in zip(self.decays, found, strict=True)}
            event |= {"ema": self.decays[self.best], "averages": named}
        return event

    def tensors(self) -> dict[str, Tensor]:
        """Return the state of all, under names that do not meet."""
        return {
            f"{prefix}{name}": tensor.clone()
            for prefix, each in zip(self._prefixes(), self.kept, strict=True)
            for name, tensor in each.state_dict().items()
        }

    def load(self, tensors: Mapping[str, Tensor], best: float | None) -> None:
        """Read back what `tensors` gave, and which decay was the best."""
        for prefix, each in zip(self._prefixes(), self.kept, strict=True):
            each.load_state_dict(under(prefix, tensors))
        self.best = self.decays.index(best) if best in self.decays else 0

    def _prefixes(self) -> list[str]:
        """Name a single average as it was named before there could be several."""
        return ["ema."] if len(self.kept) == 1 else [f"ema{i}." for i in range(len(self.kept))]


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Take the tensors whose names begin in one way, without this beginning."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
