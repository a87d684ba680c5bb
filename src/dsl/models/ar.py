"""A causal network: llama or encoder blocks, and a begin-of-sequence embedding."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from dsl.core.denoiser import Endpoints, require_tokens, wanted
from dsl.core.types import MASK, Mask, Noisy, Rows, Tokens
from dsl.models.config import NetworkShape, ShapedNetwork
from dsl.models.dit import Hidden
from dsl.models.encoder import Encoder
from dsl.models.llama import Llama, Memory


@dataclass(frozen=True)
class ArShape(NetworkShape):
    """The shape of a causal network, and how its texts end."""

    end: int | None = None
    """The end token, which can only be followed by itself, so that padding adds no cost; None if
    any token may follow any other."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.end is not None and not 0 <= self.end < self.vocab_size:
            raise ValueError(f"end must be a token, 0 … {self.vocab_size - 1}, got {self.end}")


class ArModel(ShapedNetwork):
    """A causal network. As a denoiser it predicts the first masked token after a prefix."""

    def __init__(self, config: ArShape) -> None:
        super().__init__(config)
        self.config = config
        bound = 1 / math.sqrt(config.hidden_dim)
        table = torch.empty(config.vocab_size + 1, config.hidden_dim).uniform_(-bound, bound)
        self.embedding = nn.Parameter(table)  # the last row is begin-of-sequence
        self.backbone: Encoder | Llama = (
            Encoder(config.vocab_size, causal=True, **config.blocks)
            if config.llama is None
            else Llama(config.vocab_size, config.llama, causal=True, **config.blocks)
        )

    def teacher_forced(self, tokens: Tokens) -> Float[Tensor, "b l v"]:
        """Return the logits of every token given those before it."""
        logits = self._logits(self.backbone.features(self._shifted(tokens)))
        return self._ended(logits, self._past_end(tokens))

    def extend(self, tokens: Int[Tensor, "b l"], memory: Memory | None) -> tuple[Rows, Memory]:
        """Read more tokens; return the logits of the next token and the key-value cache.

        Args:
            tokens: The new tokens; without a memory, all tokens so far, possibly none.
            memory: The cache from an earlier call; it is extended in place.
        """
        if not isinstance(self.backbone, Llama):
            raise ValueError("only llama blocks have a key-value cache")
        if memory is None:
            memory = Memory(self.config.model_length + 1)
            begin = tokens.new_full((len(tokens), 1), self.config.vocab_size)
            tokens = torch.cat([begin, tokens], dim=1)
        features = self.backbone.features(self.embedding[tokens], memory)
        return self._logits(features[:, -1]), memory

    def forward(self, z: Noisy | Endpoints, /, *, at: Mask | None = None) -> Rows:
        """Return the logits of rows with known tokens on the left and none on the right."""
        z, at = wanted(z, at)
        if not isinstance(z, Endpoints) or z.e is not None:
            raise ValueError(REFUSAL)
        require_tokens(z.tokens, self.vocab_size, least=MASK)
        known = z.tokens != MASK
        asked = torch.ones_like(known) if at is None else at
        before = known.long().cumprod(dim=1).roll(1, dims=1)
        before[:, 0] = 1
        after = known.flip(1).long().cumsum(dim=1).flip(1) - known.long()
        if (asked & ((before == 0) | (after > 0))).any():
            raise ValueError(REFUSAL)
        features = self.backbone.features(self._shifted(z.tokens.clamp(min=0)))
        past = self._past_end(z.tokens)
        if at is None:
            return self._ended(self._logits(features), past)
        return self._ended(self._logits(features[at]), None if past is None else past[at])

    def _past_end(self, tokens: Tokens) -> Mask | None:
        """Return which positions follow the end of their text."""
        if self.config.end is None:
            return None
        ends = tokens == self.config.end
        return ends.long().cumsum(dim=1) - ends.long() > 0

    def _ended(self, logits: Rows, past: Bool[Tensor, "*rows"] | None) -> Rows:
        """Allow only the end token after the end token."""
        if past is None:
            return logits
        only = logits.new_full((self.vocab_size,), -torch.inf)
        only[self.config.end] = 0.0
        return torch.where(past.unsqueeze(-1), only, logits)

    def _logits(self, features: Hidden) -> Rows:
        if isinstance(self.backbone, Llama):
            return self.backbone.head(features, self.embedding[:-1])
        return self.backbone.head(features)

    def _shifted(self, tokens: Tokens) -> Float[Tensor, "b l h"]:
        begin = torch.full_like(tokens[:, :1], self.config.vocab_size)
        return self.embedding[torch.cat([begin, tokens[:, :-1]], dim=1)]


REFUSAL = (
    "an autoregressive model generates from left to right: use the causal path, with a prompt but "
    "no suffix, no gaps and no soft evidence"
)
