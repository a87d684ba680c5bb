"""The bound of masks and noise at once: CANDI's process, its reveals and its Gaussian steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dsl.denoiser import Endpoints, Mixed, posterior_mean
from dsl.likelihoods.estimate import Estimate, Kind, require_draws, require_logits
from dsl.likelihoods.path_integral import observations
from dsl.likelihoods.roar import cross_entropy
from dsl.streams import Randomness, uniform
from dsl.types import MASK, Tokens


@dataclass(frozen=True)
class MixedBound:
    """-log P ≤ ∫ E Σ_{i hidden} (-log P(x_i | z_t)/t + ½ |γ'(t)| ‖x_i - x̂_i‖²) dt + ½ l γ(1).

    What is bounded is the model that walks back from pure noise: it reveals a hidden token at the
    rate 1/t from its posterior, and moves the others by x̂ dγ + √dγ ε. The first term is what the
    reveals cost, the second the Gaussian steps, the last that z at t = 1 is taken for noise of
    variance γ(1). Without noise, γ = 0, the first is all there is, and it is ROAR's.

    The integral is taken over the moments of reveal. With n of l tokens hidden the weight of t is
    1/n times Beta(n, l - n + 1), the law of the n-th smallest of l uniform numbers: so n is drawn
    as ROAR draws it, and t is read off the numbers that drew the set.
    """

    replicates: int = 8
    draws: int = 8
    """States in a replicate, the number of hidden tokens stratified as in ROAR."""
    batch_size: int = 256
    label: ClassVar[str] = "mixed-bound"
    kind: ClassVar[Kind] = "bound"

    def __post_init__(self) -> None:
        require_draws(self.replicates, self.draws)

    def __call__(
        self, denoiser: Mixed, tokens: Tokens, *, generator: Randomness = None
    ) -> Estimate:
        """Estimate the bound of every sequence."""
        reveals, steps = self.terms(denoiser, tokens, generator=generator)
        first = denoiser.snr_at(torch.ones((), dtype=torch.float64, device=tokens.device))
        return Estimate(reveals.values + steps.values + 0.5 * first)

    @torch.no_grad()
    def terms(
        self, denoiser: Mixed, tokens: Tokens, *, generator: Randomness = None
    ) -> tuple[Estimate, Estimate]:
        """Estimate what the reveals cost, and what the Gaussian steps do."""
        b, length = tokens.shape
        hidden, t, weight = self._states(b, length, generator, tokens.device)
        many = hidden.shape[:3]
        hidden, t = hidden.flatten(0, 2), t.flatten()
        snr = denoiser.snr_at(t).unsqueeze(1) * hidden
        e, clean = observations(denoiser.codebook, tokens, snr, generator)
        codebook = denoiser.codebook.double()
        losses, squared = torch.zeros_like(snr), torch.zeros_like(snr)
        for part in torch.arange(len(t), device=t.device).split(self.batch_size):
            at = hidden[part]
            state = Endpoints(clean[part].masked_fill(at, MASK), e[part])
            logits = denoiser.at_mixture(state, t[part].to(e.dtype))[at].double()
            require_logits(logits)
            right = clean[part][at]
            losses[part] = losses[part].masked_scatter(at, cross_entropy(logits, right))
            error = (codebook[right] - posterior_mean(logits, codebook)).square().sum(dim=-1)
            squared[part] = squared[part].masked_scatter(at, error)
        steps = -0.5 * (t * denoiser.snr_slope(t)).unsqueeze(1) * squared
        reveal, step = (weight * x.reshape(*many, length) for x in (losses, steps))
        return Estimate(reveal.mean(dim=2)), Estimate(step.mean(dim=2))

    def _states(
        self, b: int, length: int, generator: Randomness, device: torch.device
    ) -> tuple[Bool[Tensor, "b r m l"], Float[Tensor, "b r m 1"], Float[Tensor, "b r m 1"]]:
        """Draw hidden sets, their times, and the weight l/n that makes n uniform."""
        r, m = self.replicates, self.draws
        m = m if m < length else m - m % length
        u = uniform((b, r, m, 1), generator=generator, dtype=torch.float64, device=device)
        stratum = torch.arange(m, device=device).view(1, 1, m, 1)
        k = ((stratum + u) / m * length).long()
        keys = uniform((b, r, m, length), generator=generator, dtype=torch.float64, device=device)
        ordered, order = keys.sort(dim=-1)
        t = 1 - ordered.gather(-1, k)
        return order.argsort(dim=-1) >= k, t, length / (length - k).double()
