"""The variational bound of a network with an SNR input (VDM's three terms; appendix B)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.core.denoiser import Clocked, posterior_mean, require_clocked, settled
from dsl.core.streams import Randomness, uniform
from dsl.core.types import Tokens
from dsl.likelihoods.estimate import Estimate, Kind, Replicated
from dsl.likelihoods.path_integral import observations
from dsl.likelihoods.roar import cross_entropy

Law = Callable[[Float[Tensor, "*draws"]], tuple[Float[Tensor, "*draws"], Float[Tensor, "*draws"]]]
"""A law of SNRs: uniform numbers u to γ(u) and its derivative dγ/du, which is the weight."""


@dataclass(frozen=True)
class PowerLaw:
    """γ = γ_min + (γ_max - γ_min) u^power: more often where the error is large."""

    low: float
    high: float
    power: float = 2.0

    def __call__(
        self, u: Float[Tensor, "*draws"]
    ) -> tuple[Float[Tensor, "*draws"], Float[Tensor, "*draws"]]:
        """Return γ and dγ/du."""
        width = self.high - self.low
        return self.low + width * u**self.power, width * self.power * u ** (self.power - 1)


@dataclass(frozen=True)
class VdmBound(Replicated):
    """-log P ≤ KL(q(z_min) ‖ N) + ½ ∫ Σ_i E‖x_i - x̂_i‖² dγ - Σ_i E log P(x_i | z_max).

    A draw is an SNR, one in each of equal strata.
    """

    power: float = 2.0
    """The default law of SNRs: γ_min + (γ_max - γ_min) u^power."""
    law: Law | None = None
    """Another law on the same range: the same expectation, possibly a smaller error."""
    label: ClassVar[str] = "vdm-bound"
    kind: ClassVar[Kind] = "bound"

    @torch.no_grad()
    def __call__(
        self, denoiser: Clocked, tokens: Tokens, *, generator: Randomness = None
    ) -> Estimate:
        """Estimate the bound of every sequence."""
        clocked = require_clocked(denoiser)
        low, high = clocked.snr_range
        b, length = tokens.shape
        r, m = self.replicates, self.draws
        device = tokens.device
        u = uniform((b, r, m), generator=generator, dtype=torch.float64, device=device)
        u = (torch.arange(m, device=device) + u) / m
        inside, weight = (self.law or PowerLaw(low, high, self.power))(u)
        # the last draw of every replicate is the reconstruction at γ_max
        snr = torch.cat([inside, torch.full_like(inside[:, :, :1], high)], dim=2).flatten()
        levels = snr.unsqueeze(1).expand(-1, length)
        z, clean = observations(clocked.codebook, tokens, levels, generator)
        codebook = clocked.codebook.double()
        squared, losses = torch.zeros_like(levels), torch.zeros_like(levels)
        for part in torch.arange(len(z), device=device).split(self.batch_size):
            logits = settled(clocked, z[part], snr[part].to(z.dtype)).double()
            error = codebook[clean[part]] - posterior_mean(logits, codebook)
            squared[part] = error.square().sum(dim=-1)
            surprise = cross_entropy(logits.flatten(0, 1), clean[part].flatten())
            losses[part] = surprise.reshape(len(part), length)
        shape = (b, r, m + 1, length)
        integral = 0.5 * weight.unsqueeze(-1) * squared.reshape(shape)[:, :, :-1]
        prior = prior_nats(low, codebook.shape[1])
        return Estimate(integral.mean(dim=2) + losses.reshape(shape)[:, :, -1] + prior)


def prior_nats(snr: float, dim: int) -> float:
    """Return the prior's cost of a token as a number."""
    return float(prior(torch.tensor(snr, dtype=torch.float64), dim))


def prior(snr: Float[Tensor, ""], dim: int) -> Float[Tensor, ""]:
    """Return KL(N(αx, σ²) ‖ N(0, 1)) of a unit vector x at this SNR, where α² + σ² = 1."""
    alpha2 = snr / (1 + snr)
    return 0.5 * (alpha2 + dim * (snr.log1p() - alpha2))
