"""The localization channel z = γx + √γ ε, token by token (sections 2.1 and 2.3)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.core.streams import Randomness, normal
from dsl.core.types import SNR, Noisy


def observe(x: Noisy, snr: SNR, *, generator: Randomness = None) -> Noisy:
    """Observe clean embeddings through the channel: z_i = γ_i x_i + √γ_i ε_i.

    At γ = 0 the state is the zero vector, which is [MASK].
    """
    require_snr(snr)
    eps = normal(x.shape, generator=generator, dtype=x.dtype, device=x.device)
    gamma = snr.unsqueeze(-1)
    return gamma * x + gamma.sqrt() * eps


def advance(z: Noisy, x_hat: Noisy, d_snr: SNR, *, generator: Randomness = None) -> Noisy:
    """Move the state by dγ: z + x̂ dγ + √dγ ε.

    With x̂ the clean embedding this is exact (the conditional SDE, equation 4); with x̂ = E[x | z]
    it is one Euler-Maruyama step of the unconditional SDE (equation 5).
    """
    return z + observe(x_hat, d_snr, generator=generator)


def endpoint(x: Noisy, snr: SNR) -> Noisy:
    """Realize a state without noise: γx. γ = 0 is [MASK]; γ = γ_max is a hard token."""
    require_snr(snr)
    return snr.unsqueeze(-1) * x


def snr_from_sigma(sigma: Tensor) -> Tensor:
    """Convert EDM's noise level to SNR: γ = 1/σ²."""
    return sigma**-2


def natural(y: Noisy, sigma: Float[Tensor, "b l"]) -> Noisy:
    """Turn EDM's physical state y = x + σε into the posterior natural coordinate z = y/σ²."""
    return y * snr_from_sigma(sigma).unsqueeze(-1)


def physical(z: Noisy, sigma: Float[Tensor, "b l"]) -> Noisy:
    """Turn z back into EDM's physical state y = σ² z."""
    return z * sigma.unsqueeze(-1) ** 2


def require_snr(snr: Tensor) -> None:
    """Raise an error if an SNR is negative or not finite; name the first bad position."""
    if torch.compiler.is_compiling():
        return  # a data-dependent check would break the compiled graph
    bad = ~((snr >= 0) & snr.isfinite())
    if bad.any():
        where = tuple(int(i) for i in bad.nonzero()[0])
        raise ValueError(f"SNR must be finite and >= 0, got {float(snr[where]):g} at {where}")


def require_finite(z: Tensor) -> None:
    """Raise an error if the state is not finite; name the first bad position."""
    if torch.compiler.is_compiling():
        return
    if not z.isfinite().all():
        where = tuple(int(i) for i in (~z.isfinite()).nonzero()[0])
        raise ValueError(f"the state z must be finite, got {float(z[where])} at {where}")
