"""The base class of our networks: shape, vocabulary and a two-line description."""

from __future__ import annotations

import torch
from torch import nn

from dsl.models.config import NetworkShape


class ShapedNetwork(nn.Module):
    """A network with a config."""

    def __init__(self, config: NetworkShape) -> None:
        super().__init__()
        self._shape = config

    @property
    def vocab_size(self) -> int:
        """The number of real tokens."""
        return self._shape.vocab_size

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def __repr__(self) -> str:
        """Describe the network in two lines; `str(list(network.modules()))` shows everything."""
        shape = self._shape
        weights = sum(parameter.numel() for parameter in self.parameters())
        return (
            f"{type(self).__name__}: {weights:,} weights, {shape.n_blocks} blocks of width "
            f"{shape.hidden_dim}, {shape.n_heads} heads,\n"
            f"  {shape.vocab_size:,} tokens, sequences of at most {shape.model_length:,}, "
            f"on {self.device}"
        )
