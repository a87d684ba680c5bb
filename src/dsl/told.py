"""Likelihoods that depend on the state: what is wanted of a text as a whole, told token by token.

Evidence about one position is a vector ℓ_i(v), the same in every state. What is wanted of a whole
text (a form, a reward) says of position i: ℓ_i(v) = log E[e^{r(x)} | x_i = v, what is known], which
changes with every token that becomes known. Added to the logits it is Bayes' rule, and with the
exact ℓ and one token at a time what is drawn has the distribution P(x) e^{r(x)}, normalised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.around import Around
from dsl.denoiser import Endpoints, Question
from dsl.types import MASK, Logits, Mask, Noisy, Rows

TOLD: frozenset[Question] = frozenset({"prefix", "endpoints"})
"""What a denoiser that is told something can still be asked."""
Likelihood = Callable[[Float[Tensor, "b l v"]], Logits]
"""Returns ℓ_i(v), up to a constant of i, from a distribution for each token: its posterior if it is
masked, and certainty if it is known."""


@dataclass(frozen=True, eq=False)
class Told(Around):
    """A denoiser of masks and tokens that is told what is wanted of the whole text."""

    likelihood: Likelihood
    impossible: str = "no token is left that what is wanted of the text allows"
    """What to say when ℓ rules out every token of a position."""

    def stretch(self, begin: int, end: int) -> Around:
        """Refuse: a part of a text does not show what is wanted of the whole."""
        raise ValueError("what is wanted of a whole text cannot be told to a part of it")

    def __call__(self, z: Noisy | Endpoints, /, *, at: Mask | None = None) -> Rows:
        """Ask about all masked tokens, and weigh those that are asked for."""
        if not isinstance(z, Endpoints):
            raise ValueError(
                "what is wanted of a whole text is for masked paths: it knows masks and tokens only"
            )
        hidden = z.tokens == MASK
        logits = self.denoiser(z, at=hidden).double()
        known = torch.nn.functional.one_hot(z.tokens.clamp(min=0), self.vocab_size).double()
        p = known.masked_scatter(hidden.unsqueeze(-1), logits.softmax(dim=-1))
        rows = known.log().masked_scatter(hidden.unsqueeze(-1), logits)
        asked = torch.ones_like(hidden) if at is None else at
        told = (rows + self.likelihood(p))[asked]
        if (told.amax(dim=-1) == -torch.inf).any():
            raise ValueError(self.impossible)
        return told if at is not None else told.reshape(rows.shape)
