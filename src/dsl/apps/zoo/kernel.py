"""The discrete channel: a token stays with probability α, and is replaced by noise otherwise.

q(x_t | x_0) = α_t δ(x_0) + (1 - α_t) π, where the noise π is a mask (absorbing) or any token
(uniform). All discrete processes of the zoo use it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.core import MASK, Logits, Mask, Randomness, Tokens, uniform

Noise = Literal["absorbing", "uniform"]


@dataclass(frozen=True)
class Kernel:
    """Transitions of one token, the same at every position."""

    noise: Noise
    vocab_size: int

    @property
    def states(self) -> int:
        """The number of states of a token: all tokens and, for absorbing noise, the mask (last)."""
        return self.vocab_size + (self.noise == "absorbing")

    def corrupt(
        self, tokens: Tokens, alpha: Float[Tensor, "b"], *, generator: Randomness = None
    ) -> Tokens:
        """Draw x_t given x_0, with one α for each sequence; masked positions are MASK."""
        shape, device = tokens.shape, tokens.device
        kept = uniform(shape, generator=generator, device=device) < alpha.unsqueeze(1)
        return torch.where(kept, tokens, self.pure(shape, generator=generator, device=device))

    def pure(
        self,
        shape: tuple[int, ...],
        *,
        generator: Randomness = None,
        device: torch.device | None = None,
    ) -> Tokens:
        """Draw from π."""
        if self.noise == "absorbing":
            return torch.full(shape, MASK, device=device)
        u = uniform(shape, generator=generator, dtype=torch.float64, device=device)
        return (u * self.vocab_size).long()

    def doubtful(self, noisy: Tokens) -> Mask:
        """Return which tokens may be noise: masks for absorbing noise, any for uniform noise."""
        return noisy == MASK if self.noise == "absorbing" else torch.ones_like(noisy).bool()

    def log_likelihood(self, noisy: Tokens, alpha: Float[Tensor, "b"]) -> Logits:
        """Return log q(x_t | x_0 = v) of every token v."""
        alpha = alpha.view(-1, 1, 1)
        own = one_hot(noisy.clamp(min=0), self.vocab_size, alpha.dtype)
        if self.noise == "uniform":
            return (alpha * own + (1 - alpha) / self.vocab_size).log()
        masked = (noisy == MASK).unsqueeze(-1)
        return torch.where(masked, 1 - alpha, alpha * own).log()

    def posterior(
        self,
        noisy: Tokens,
        clean: Float[Tensor, "b l v"],
        alpha_t: Float[Tensor, "b"],
        alpha_s: Float[Tensor, "b"],
    ) -> Float[Tensor, "b l states"]:
        """Return q(x_s | x_t, x̂_0) for s < t: [q(x_t | x_s)] ⊙ [α_s x̂_0 + (1 - α_s) π], normalised.

        Args:
            noisy: x_t.
            clean: x̂_0, a distribution of the clean token at every position.
            alpha_t: α at the later time, one for each sequence.
            alpha_s: α at the earlier time, which is larger.
        """
        a_t, a_s = alpha_t.view(-1, 1, 1), alpha_s.view(-1, 1, 1)
        stay = a_t / a_s
        if self.noise == "uniform":
            own = one_hot(noisy, self.vocab_size, clean.dtype)
            reach = stay * own + (1 - stay) / self.vocab_size
            joint = reach * (a_s * clean + (1 - a_s) / self.vocab_size)
            return joint / joint.sum(dim=-1, keepdim=True)
        # a mask at t was a mask at s, or was masked between s and t
        revealed = (a_s - a_t) / (1 - a_t)
        hidden = torch.cat([revealed * clean, (1 - revealed).expand_as(clean[..., :1])], dim=-1)
        masked = (noisy == MASK).unsqueeze(-1)
        return torch.where(masked, hidden, one_hot(noisy.clamp(min=0), self.states, clean.dtype))


def one_hot(tokens: Tokens, size: int, dtype: torch.dtype) -> Logits:
    """Return indicator rows."""
    return torch.nn.functional.one_hot(tokens, size).to(dtype)
