"""The shapes of the paper: b sequences of l tokens, d embedding coordinates, v vocabulary items."""

from __future__ import annotations

from jaxtyping import Bool, Float, Int
from torch import Tensor

Tokens = Int[Tensor, "b l"]
"""Token ids; if documented, MASK (-1) marks a masked position."""

Row = Int[Tensor, "_"]
"""The tokens of one sequence, whatever its length."""

SNR = Float[Tensor, "b l"]
"""Per-token signal-to-noise ratio γ ≥ 0."""

Mask = Bool[Tensor, "b l"]
"""A choice of positions."""

Noisy = Float[Tensor, "b l d"]
"""Token states z = γx + √γ ε, and everything else that lives in embedding space."""

Logits = Float[Tensor, "b l v"]
"""Unnormalised log-probabilities over clean tokens, one row per position."""

Rows = Float[Tensor, "*rows v"]
"""Logits of chosen positions: (b, l, v) for all of them, (n, v) for the n that a Mask chose."""

Codebook = Float[Tensor, "v d"]
"""Token embeddings, every row of norm one."""

MASK = -1
"""The token id of a position at γ = 0; never an index into the vocabulary."""
