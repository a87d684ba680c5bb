"""A network over clean and noisy tokens: MDLM's DiT, which is told the time and shown the noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dsl import sphere
from dsl.denoiser import Endpoints, require_tokens
from dsl.models.codebook import initial_table
from dsl.models.config import NetworkShape, require_codebook
from dsl.models.mdlm import MDLM
from dsl.models.network import ShapedNetwork
from dsl.models.timed import TICKS
from dsl.types import MASK, Codebook, Logits


@dataclass(frozen=True)
class Rank:
    """γ(t) at which a wrong token outranks the right one with probability r, r linear in t.

    On a simplex of v unit vectors r = Φ(-√(γ v / (2(v - 1)))): at r = ½ nothing is seen.
    """

    vocab_size: int
    low: float = 0.01
    """r at t = 0."""
    high: float = 0.49
    """r at t = 1."""

    def __post_init__(self) -> None:
        if not 0 < self.low < self.high < 0.5:
            raise ValueError(
                f"ranks must satisfy 0 < rank_min < rank_max < 0.5, got {self.low} and {self.high}"
            )

    def __call__(self, t: Tensor) -> Tensor:
        """Return γ(t) = 2 (v - 1)/v Φ⁻¹(r)²."""
        return self._scale * self._quantile(t).square()

    def slope(self, t: Tensor) -> Tensor:
        """Return dγ/dt, by dΦ⁻¹/dr = √(2π) e^{Φ⁻¹(r)²/2}."""
        q = self._quantile(t)
        steepness = math.sqrt(2 * math.pi) * (q.square() / 2).exp()
        return 2 * self._scale * q * steepness * (self.high - self.low)

    @property
    def _scale(self) -> float:
        return 2 * (self.vocab_size - 1) / self.vocab_size

    def _quantile(self, t: Tensor) -> Tensor:
        q: Tensor = torch.special.ndtri(self.low + (self.high - self.low) * t)
        return q


@dataclass(frozen=True)
class CandiShape(NetworkShape):
    """The shape of CANDI's network."""

    cond_dim: int = 128
    codebook_dim: int = 64
    codebook: Literal["random", "simplex"] = "random"
    """What the noise is added to; it is not trained. A simplex is the same as one-hot vectors."""
    rank_min: float = 0.01
    """How often a wrong token outranks the right one in the noise at t = 0."""
    rank_max: float = 0.49
    """The same at t = 1. Published: 0.25, where the noise still shows half a nat of a token."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_codebook(self.vocab_size, self.codebook_dim, self.codebook)
        if self.llama is not None:
            raise ValueError("llama's blocks read no clock, which CANDI's network needs")
        if self.cond_dim < 1:
            raise ValueError(f"cond_dim must be at least 1, got {self.cond_dim}")
        Rank(self.vocab_size, self.rank_min, self.rank_max)  # refuses ranks that make no schedule


class CandiModel(ShapedNetwork):
    """MDLM's network, told the time, with one layer more: the noisy states beside the mask."""

    codebook: Codebook

    def __init__(self, config: CandiShape) -> None:
        super().__init__(config)
        self.config = config
        v, d = config.vocab_size, config.codebook_dim
        self.register_buffer("codebook", sphere.unit(initial_table(config.codebook, v, d)))
        self.project = nn.Linear(d, config.hidden_dim, bias=False)
        self.backbone = MDLM(v + 1, cond_dim=config.cond_dim, **config.blocks)
        self._snr = Rank(v, config.rank_min, config.rank_max)

    def snr_at(self, t: Tensor) -> Tensor:
        """Return γ(t) of the hidden tokens."""
        return self._snr(t)

    def snr_slope(self, t: Tensor) -> Tensor:
        """Return dγ/dt."""
        return self._snr.slope(t)

    def at_mixture(self, z: Endpoints, t: Float[Tensor, "b"]) -> Logits:
        """Return clean-token logits; a hidden token is the mask's row and its scaled state."""
        require_tokens(z.tokens, self.vocab_size, least=MASK)
        assert z.e is not None, "a mixture has the noisy state of every hidden token"
        hidden = z.tokens == MASK
        gamma = self.snr_at(t).view(-1, 1, 1).to(z.e)
        unit = z.e / (gamma + gamma.square() / z.e.shape[-1]).sqrt()
        x = self.backbone.vocab_embed(z.tokens.masked_fill(hidden, self.vocab_size))
        x = x + self.project(unit) * hidden.unsqueeze(-1)
        clock = (TICKS * t).to(x.dtype)
        logits = self.backbone.head(self.backbone.features(x, clock), clock)
        return logits[..., : self.vocab_size]
