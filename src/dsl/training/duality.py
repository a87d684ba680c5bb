"""The Gaussian diffusion beneath uniform noise (Sahoo et al. 2025, "The Diffusion Duality").

The argmax of w = α̃ x + σ̃ ε, where x is the indicator of a token and α̃² + σ̃² = 1, is the token
with some probability and any other one equally often: it has the law of uniform noise at α = T(α̃).
"""

from __future__ import annotations

from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.streams import Randomness, normal
from dsl.types import Logits, Tokens

FARTHEST, SPACING = 9.0, 0.1
"""Where the Gaussian integral is cut, and its grid: beyond 9σ lie 2e-19 of the mass, and on so
smooth an integrand the trapezoid rule errs by less than 1e-11, up to vocabularies of 200,000."""

LARGEST_RATIO, ROWS = 12.0, 2**13
"""The table of T⁻¹ in α̃/σ̃: at 12, 1 - α is below 1e-11; between its rows α errs by 1e-7."""


def transformed(signal: Float[Tensor, "n"], vocab_size: int) -> Float[Tensor, "n"]:
    """Return the α of the uniform process for the α̃ of the Gaussian one.

    T(α̃) = (V p - 1) / (V - 1), where p = ∫ N(ε) Φ(ε + α̃/σ̃)^{V-1} dε is the probability that the
    token's own coordinate exceeds all V - 1 others.
    """
    signal = signal.double()
    return _of_ratio(signal / (1 - signal.square()).sqrt(), vocab_size)


def signal_for(alpha: Float[Tensor, "n"], vocab_size: int) -> Float[Tensor, "n"]:
    """Return T⁻¹(α), the α̃ whose argmax is left alone with probability α; from a table."""
    ratios, alphas = _table(vocab_size, alpha.device)
    alpha = alpha.double().contiguous()
    right = torch.searchsorted(alphas, alpha).clamp(1, ROWS - 1)
    low, high = alphas[right - 1], alphas[right]
    share = ((alpha - low) / (high - low).clamp(min=1e-16)).clamp(0, 1)
    ratio = torch.lerp(ratios[right - 1], ratios[right], share)
    return ratio / (1 + ratio.square()).sqrt()


def latents(
    tokens: Tokens, alpha: Float[Tensor, "b"], vocab_size: int, *, generator: Randomness = None
) -> Logits:
    """Draw w = α̃ x + σ̃ ε at every position, each sequence at the α that its argmax shall have."""
    signal = signal_for(alpha, vocab_size).view(-1, 1, 1)
    noise = normal((*tokens.shape, vocab_size), generator=generator, device=tokens.device)
    w = (1 - signal.square()).sqrt().to(noise.dtype) * noise
    own = signal.to(w.dtype).expand(*tokens.shape, 1)
    return w.scatter_add(-1, tokens.unsqueeze(-1), own)


@cache
def _table(
    vocab_size: int, device: torch.device
) -> tuple[Float[Tensor, "rows"], Float[Tensor, "rows"]]:
    """Tabulate α over α̃/σ̃, never falling: where α is 1 up to rounding, rounding could."""
    ratios = torch.linspace(0, LARGEST_RATIO, ROWS, dtype=torch.float64, device=device)
    return ratios, _of_ratio(ratios, vocab_size).cummax(dim=0).values


def _of_ratio(ratio: Float[Tensor, "n"], vocab_size: int) -> Float[Tensor, "n"]:
    """Integrate for α̃/σ̃; what is lost rather than what is kept, which is exact as α → 1."""
    if vocab_size < 2:
        raise ValueError(f"uniform noise needs at least 2 tokens, got {vocab_size}")
    points = round(2 * FARTHEST / SPACING) + 1
    epsilon = torch.linspace(-FARTHEST, FARTHEST, points, dtype=torch.float64, device=ratio.device)
    weight = (-epsilon.square() / 2).softmax(dim=0)
    others = (vocab_size - 1) * torch.special.log_ndtr(ratio.unsqueeze(-1) + epsilon)
    lost: Tensor = -others.expm1() @ weight
    return 1 - vocab_size / (vocab_size - 1) * lost
