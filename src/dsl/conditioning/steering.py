"""Steer a denoiser towards a property of the whole text.

Evidence about one position is a vector ℓ_i(v), the same in every state. A property of the whole
text (a pattern, a reward r) gives ℓ_i(v) = log E[e^{r(x)} | x_i = v, known tokens], which changes
with every revealed token. Adding it to the logits is Bayes' rule. With the exact ℓ and one token
at a time, samples have the distribution P(x) e^{r(x)}, normalised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.conditioning.wrapper import Wrapper
from dsl.core.denoiser import Endpoints
from dsl.core.types import MASK, Logits, Mask, Noisy, Rows

Likelihood = Callable[[Float[Tensor, "b l v"]], Logits]
"""Returns ℓ_i(v), up to a constant per position, from a distribution for each token: its posterior
if masked, one-hot if known."""


@dataclass(frozen=True, eq=False)
class Steered(Wrapper):
    """A denoiser of masked states, steered towards a property of the whole text."""

    likelihood: Likelihood
    impossible: str = "the steering rules out every token of a position"
    """The error message if ℓ rules out every token of a position."""

    def stretch(self, begin: int, end: int) -> Wrapper:
        """Raise an error: the property is defined for the whole text only."""
        raise ValueError("steering needs the whole text: it cannot be restricted to a part of it")

    def __call__(self, z: Noisy | Endpoints, /, *, at: Mask | None = None) -> Rows:
        """Predict all masked tokens, and add ℓ to the requested rows."""
        if not isinstance(z, Endpoints):
            raise ValueError(
                "steering needs a masked path: it is defined for masks and tokens only"
            )
        hidden = z.tokens == MASK
        logits = self.denoiser(z, at=hidden).double()
        known = torch.nn.functional.one_hot(z.tokens.clamp(min=0), self.vocab_size).double()
        p = known.masked_scatter(hidden.unsqueeze(-1), logits.softmax(dim=-1))
        rows = known.log().masked_scatter(hidden.unsqueeze(-1), logits)
        chosen = torch.ones_like(hidden) if at is None else at
        steered = (rows + self.likelihood(p))[chosen]
        if (steered.amax(dim=-1) == -torch.inf).any():
            raise ValueError(self.impossible)
        return steered if at is not None else steered.reshape(rows.shape)
