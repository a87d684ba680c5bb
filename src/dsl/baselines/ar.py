"""The autoregressive baseline: the same blocks, causal, without any modulation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dsl.denoiser import Endpoints, require_tokens, wanted
from dsl.models.config import ModelConfig
from dsl.models.encoder import Encoder
from dsl.streams import Streams
from dsl.training.objective import Loss
from dsl.types import MASK, Codebook, Mask, Noisy, Rows, Tokens


@dataclass(frozen=True)
class ArObjectiveConfig:
    """The autoregressive objective has no choices."""


class ArModel(nn.Module):
    """A causal network. As a denoiser it answers about the first masked token of a prefix."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        bound = 1 / math.sqrt(config.hidden_dim)
        table = torch.empty(config.vocab_size + 1, config.hidden_dim).uniform_(-bound, bound)
        self.embedding = nn.Parameter(table)  # the last row begins every sequence
        self.backbone = Encoder(config.vocab_size, causal=True, **config.blocks)

    @property
    def codebook(self) -> Codebook:
        """All tokens at one point of the sphere: this model has no geometry of its own."""
        return self.embedding.new_ones(1, 1).expand(self.config.vocab_size, 1)

    @property
    def snr_max(self) -> float:
        """The SNR of a revealed token."""
        return self.config.snr_max

    def teacher_forced(self, tokens: Tokens) -> Float[Tensor, "b l v"]:
        """Return the logits of every token given those before it."""
        return self.backbone.head(self.backbone.features(self._shifted(tokens)))

    def forward(self, z: Noisy | Endpoints, /, *, at: Mask | None = None) -> Rows:
        """Return the logits of rows of which everything to the left is known, and nothing else."""
        z, at = wanted(z, at)
        if not isinstance(z, Endpoints) or z.e is not None:
            raise ValueError(REFUSAL)
        require_tokens(z.tokens, self.codebook, least=MASK)
        known = z.tokens != MASK
        asked = torch.ones_like(known) if at is None else at
        before = known.long().cumprod(dim=1).roll(1, dims=1)
        before[:, 0] = 1
        after = known.flip(1).long().cumsum(dim=1).flip(1) - known.long()
        if (asked & ((before == 0) | (after > 0))).any():
            raise ValueError(REFUSAL)
        features = self.backbone.features(self._shifted(z.tokens.clamp(min=0)))
        return self.backbone.head(features if at is None else features[at])

    def describe(self) -> dict[str, Any]:
        """Return the contents of config.json."""
        return {"kind": "ar", **self.config.to_dict()}

    def _shifted(self, tokens: Tokens) -> Float[Tensor, "b l h"]:
        begin = torch.full_like(tokens[:, :1], self.config.vocab_size)
        return self.embedding[torch.cat([begin, tokens[:, :-1]], dim=1)]


REFUSAL = (
    "an autoregressive model reads from left to right: use the causal path, with a prompt but "
    "no suffix, no gaps and no soft evidence"
)


class ArObjective(nn.Module):
    """Next-token cross-entropy."""

    def __init__(self, model: ArModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Return the exact -log P of a batch, for each token."""
        logits = self.model.teacher_forced(tokens)
        losses = nn.functional.cross_entropy(
            logits.flatten(0, 1).float(), tokens.flatten(), reduction="none"
        )
        count = torch.tensor(tokens.numel(), device=tokens.device)
        return Loss(losses.mean(), {"all": (losses.detach().sum(), count)})
