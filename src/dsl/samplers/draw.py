"""Drawing tokens from logits: temperature, top-k, top-p, in float64 on the rows that are drawn."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dsl.core.denoiser import require_logits
from dsl.core.streams import categorical


@dataclass(frozen=True)
class Draw:
    """How a token is drawn from a row of logits.

    float64 matters: in float32 the uniform numbers are too coarse to reach the tail, which lowers
    the effective temperature and flatters generative perplexity.
    """

    temperature: float = 1.0
    """0 takes the most likely token."""
    top_k: int | None = None
    """Keep this many of the most likely tokens."""
    top_p: float = 1.0
    """Keep the most likely tokens up to this mass."""
    crossing: Literal["drop", "keep"] = "drop"
    """Whether the token that crosses top_p is kept: ReMDM drops it, Hugging Face keeps it.
    The most likely token is always kept."""

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise ValueError(f"temperature must be >= 0, got {self.temperature}")
        if self.temperature == math.inf:  # a token of probability 0 would be 0/0
            raise ValueError("temperature must be finite, got inf")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must lie in (0, 1], got {self.top_p}")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k must be at least 1, got {self.top_k}")

    def probabilities(self, logits: Float[Tensor, "n v"]) -> Float[Tensor, "n v"]:
        """Return the distribution that tokens are drawn from."""
        logits = logits.double()
        if self.temperature == 0:
            return torch.nn.functional.one_hot(logits.argmax(dim=-1), logits.shape[-1]).double()
        # The best at 0: divided by a tiny temperature the others go to -inf, and it does not.
        best = logits.amax(dim=-1, keepdim=True)
        p = ((logits - best) / self.temperature).softmax(dim=-1)
        if self.top_k is None and self.top_p == 1:
            return p
        ordered, order = p.sort(dim=-1, descending=True, stable=True)
        kept = torch.ones_like(ordered, dtype=torch.bool)
        if self.top_k is not None:
            kept[:, self.top_k :] = False
        if self.top_p < 1:
            ordered = ordered * kept / (ordered * kept).sum(dim=-1, keepdim=True)
            kept &= nucleus(ordered, self.top_p, crossing=self.crossing)
        ordered = ordered * kept
        return torch.zeros_like(p).scatter(-1, order, ordered / ordered.sum(dim=-1, keepdim=True))

    def __call__(
        self, logits: Float[Tensor, "n v"], u: Float[Tensor, "n"]
    ) -> tuple[Int[Tensor, "n"], Float[Tensor, "n"]]:
        """Draw a token for every row by inverting its distribution at u; return its probability."""
        require_logits(logits)
        p = self.probabilities(logits)
        tokens = categorical(p, u.double())
        return tokens, p.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


def nucleus(
    ordered: Float[Tensor, "n v"], top_p: float, *, crossing: Literal["drop", "keep"]
) -> Tensor:
    """Choose the tokens of rows in descending order that make up top_p."""
    cumulative = ordered.cumsum(dim=-1)
    kept = cumulative <= top_p if crossing == "drop" else cumulative - ordered < top_p
    kept[:, 0] = True
    return kept
