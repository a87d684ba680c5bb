"""The bound of a network of score ratios: score entropy along its process (SEDD)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.denoiser import Scored
from dsl.kernel import Kernel
from dsl.likelihoods.estimate import Estimate, Kind, require_draws, require_logits
from dsl.streams import Randomness, Streams, uniform
from dsl.types import MASK, Logits, Tokens

EDGE = 1e-9
"""Times are kept this far from 0 and 1, where ratios are infinite; it moves the integral as far."""


@dataclass(frozen=True)
class ScoreEntropy:
    """-log P ≤ KL(q_1 ‖ π) + ∫ σ' Σ_i Σ_y Q(y, x_i) [s_y - r_y log s_y + r_y (log r_y - 1)] dt.

    P is the reverse process in continuous time, from π at t = 1 all the way to t = 0: no end is
    cut off. Below the least time of training a network answers from what it learned there.
    """

    replicates: int = 8
    draws: int = 8
    """Times in a replicate, one in each of as many strata."""
    power: float = 2.0
    """t = u^power: more often where few tokens are noise and each of them counts 1/t. With 1 the
    variance would be infinite."""
    batch_size: int = 256
    label: ClassVar[str] = "score-entropy"
    kind: ClassVar[Kind] = "bound"

    def __post_init__(self) -> None:
        require_draws(self.replicates, self.draws)

    @torch.no_grad()
    def __call__(
        self, denoiser: Scored, tokens: Tokens, *, generator: Randomness = None
    ) -> Estimate:
        """Estimate the bound of every sequence."""
        b, length = tokens.shape
        r, m = self.replicates, self.draws
        device = tokens.device
        u = uniform((b, r, m), generator=generator, dtype=torch.float64, device=device)
        u = (torch.arange(m, device=device) + u) / m
        weight = self.power * u ** (self.power - 1)
        t = (u**self.power).clamp(EDGE, 1 - EDGE).flatten()
        clean = tokens.repeat_interleave(r * m, dim=0)
        noisy = corrupted(denoiser, clean, t, generator=repeated(generator, r * m))
        parts = []
        for part in torch.arange(len(clean), device=device).split(self.batch_size):
            parts.append(path_losses(denoiser, noisy[part], clean[part], t[part]))
            require_logits(parts[-1])
        losses = torch.cat(parts).reshape(b, r, m, length)
        prior = prior_nats(denoiser.kernel, last_alpha(denoiser))
        return Estimate((weight.unsqueeze(-1) * losses).mean(dim=2) + prior)


def corrupted(
    network: Scored, tokens: Tokens, t: Float[Tensor, "b"], *, generator: Randomness = None
) -> Tokens:
    """Draw x_t given x_0, so that masks cover everything at t = 1, where samplers begin.

    A schedule that ends at α_1 > 0 would leave tokens there which the prior, all masks, cannot
    have. Masks are drawn with (α - α_1) / (1 - α_1) instead: tokens are revealed at the rate
    -α'/(1 - α), which is the same for both, so the integrand stays as it is.
    """
    alpha = network.alpha(t)
    if network.kernel.noise == "absorbing":
        last = last_alpha(network)
        alpha = (alpha - last) / (1 - last)
    return network.kernel.corrupt(tokens, alpha, generator=generator)


def path_losses(
    network: Scored, noisy: Tokens, clean: Tokens, t: Float[Tensor, "b"]
) -> Float[Tensor, "b l"]:
    """Return σ'(t) times the score entropy of every position, where σ = -log α.

    All is computed in the precision of t, whatever that of the network.
    """
    alpha = network.alpha(t)
    log_score = network.log_score(noisy, t).to(t.dtype)
    rate = -network.alpha.slope(t) / alpha
    return rate.unsqueeze(1) * score_entropy(log_score, noisy, clean, network.kernel, alpha)


def score_entropy(
    log_score: Logits, noisy: Tokens, clean: Tokens, kernel: Kernel, alpha: Float[Tensor, "b"]
) -> Float[Tensor, "b l"]:
    """Return Σ_y Q(y, x) [s_y - r_y log s_y + r_y (log r_y - 1)] for x = x_t and clean x_0.

    Q is 1 from any token to the mask, or 1/v from any token to any; r_y = q(y | x_0) / q(x | x_0).
    It is written as Σ Q r (e^d - 1 - d) with d = log s - log r, in which no large terms cancel.
    """
    if kernel.noise == "uniform":
        log_q = kernel.log_likelihood(clean, alpha)  # which is symmetric: x_t and x_0 may swap
        log_r = log_q - log_q.gather(-1, noisy.unsqueeze(-1))
        d = log_score - log_r  # of the own token it is 0: log s = log r = 0
        return (log_r.exp() * (d.expm1() - d)).mean(dim=-1)
    hidden = noisy == MASK
    odds = (alpha / (1 - alpha)).unsqueeze(1).expand(noisy.shape)[hidden]
    log_p = log_score[hidden] - odds.log().unsqueeze(-1)  # r = odds for x_0, 0 for the others
    own = log_p.gather(-1, clean[hidden].unsqueeze(-1)).squeeze(-1)
    losses = torch.zeros(noisy.shape, dtype=log_score.dtype, device=noisy.device)
    losses[hidden] = odds * (log_p.exp().sum(dim=-1) - 1 - own)
    return losses


def last_alpha(network: Scored) -> float:
    """Return α_1, the share of tokens that the process never forgets."""
    return float(network.alpha(torch.ones((), dtype=torch.float64)))


def prior_nats(kernel: Kernel, alpha: float) -> float:
    """Return KL(q_1 ‖ π) of one token; of masks it is 0, because they are drawn to cover all."""
    if kernel.noise == "absorbing":
        return 0.0
    v = kernel.vocab_size
    own, other = 1 + (v - 1) * alpha, 1 - alpha  # v times the chance of x_0, and of any other
    return (own * math.log(own) + (v - 1) * other * math.log(other)) / v


def repeated(generator: Randomness, times: int) -> Randomness:
    """Let every stream serve as many rows in a row."""
    if not isinstance(generator, Streams):
        return generator
    return generator.take(row for row in range(len(generator)) for _ in range(times))
