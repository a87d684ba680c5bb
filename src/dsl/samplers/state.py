"""The immutable state of a batch on its path."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dsl.core.denoiser import Endpoints
from dsl.core.streams import Randomness, uniform
from dsl.core.types import MASK, SNR, Mask, Noisy, Tokens


@dataclass(frozen=True, eq=False)
class State:
    """A batch of states, each token at its own SNR.

    While `z` is None every position sits at an endpoint: MASK is γ = 0, a token is γ_max.
    """

    tokens: Tokens
    fixed: Mask
    """Positions that no sampler may change; they hold tokens."""
    nfe: Int[Tensor, "b"]
    """The number of denoiser calls for each sequence."""
    confidence: Float[Tensor, "b l"]
    """The latest confidence in each token; 0 if not yet computed."""
    z: Noisy | None = None
    """The continuous state of every position, if the path is between the endpoints."""
    snr: SNR | None = None
    """The SNR of z."""
    memory: Any = None
    """Private memory of the running sampler."""
    step: int = 0
    """Steps taken in this stage."""
    stage: int = 0
    """Stages of a chain left behind."""

    @classmethod
    def start(cls, tokens: Tokens) -> State:
        """Start with these tokens pinned and everything else masked."""
        return cls(
            tokens=tokens,
            fixed=tokens != MASK,
            nfe=torch.zeros(tokens.shape[0], dtype=torch.long, device=tokens.device),
            confidence=torch.zeros(tokens.shape, dtype=torch.float64, device=tokens.device),
        )

    @classmethod
    def blank(cls, b: int, length: int, *, device: torch.device | None = None) -> State:
        """Start with every token masked."""
        return cls.start(torch.full((b, length), MASK, dtype=torch.long, device=device))

    @property
    def masked(self) -> Mask:
        """The positions that carry no token."""
        return self.tokens == MASK

    @property
    def free(self) -> Mask:
        """The positions a sampler may change."""
        return ~self.fixed

    @property
    def endpoints(self) -> Endpoints:
        """The state as tokens and masks."""
        assert self.z is None, "a continuous state is no endpoint state: commit it first"
        return Endpoints(self.tokens)

    def uniform(self, generator: Randomness) -> Float[Tensor, "b l"]:
        """Draw a number of [0, 1) for every position, in float64."""
        shape, device = self.tokens.shape, self.tokens.device
        return uniform(shape, generator=generator, dtype=torch.float64, device=device)

    def levels(self, snr_max: float) -> SNR:
        """Return the SNR of every position."""
        if self.snr is None:
            return snr_max * (~self.masked).double()
        return torch.where(self.masked, self.snr.double(), snr_max)

    def commit(self, at: Mask, tokens: Int[Tensor, "n"], confidence: Float[Tensor, "n"]) -> State:
        """Put tokens at the chosen positions, which must be free."""
        return replace(
            self,
            tokens=self.tokens.masked_scatter(at, tokens),
            confidence=self.confidence.masked_scatter(at, confidence.double()),
        )

    def remask(self, at: Mask) -> State:
        """Send the chosen positions back to γ = 0."""
        return replace(
            self,
            tokens=self.tokens.masked_fill(at, MASK),
            confidence=self.confidence.masked_fill(at, 0.0),
        )
