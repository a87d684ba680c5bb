"""The continuous-time bound of uniform-state diffusion (UDLM, DUO)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.denoiser import Timed
from dsl.kernel import Kernel
from dsl.likelihoods.estimate import Estimate, Kind, require_draws, require_logits
from dsl.streams import Randomness, uniform
from dsl.types import Logits, Tokens

LEAST_TIME = 1e-3
"""Where the integral ends, as in the original: below it few tokens are replaced, at weight 1/t."""


@dataclass(frozen=True)
class UniformBound:
    """-log P ≤ ∫_{t_0}^1 Σ_i E ℓ_i dt - Σ_i E log q(x_i | x_{t_0}, x̂_0), ℓ being `jump_nats`.

    At t = 1 all is noise, so there is no prior term and the integrand is 0. The last stretch, from
    t_0 to 0, is one step of the ancestral sampler: with it the sum is a bound at any t_0.
    """

    replicates: int = 8
    draws: int = 8
    """Times in a replicate, one in each of as many strata; the read-out at t_0 is one call more."""
    least_time: float = LEAST_TIME
    """t_0."""
    batch_size: int = 256
    label: ClassVar[str] = "duo-nelbo"
    kind: ClassVar[Kind] = "bound"

    def __post_init__(self) -> None:
        require_draws(self.replicates, self.draws)
        if not 0 < self.least_time < 1:
            raise ValueError(f"least_time must lie in (0, 1), got {self.least_time}")

    @torch.no_grad()
    def __call__(
        self, denoiser: Timed, tokens: Tokens, *, generator: Randomness = None
    ) -> Estimate:
        """Estimate the bound of every sequence."""
        require_uniform(denoiser.kernel)
        b, length = tokens.shape
        r, m = self.replicates, self.draws
        u = uniform((b, r, m), generator=generator, dtype=torch.float64, device=tokens.device)
        u = (torch.arange(m, device=tokens.device) + u) / m
        inside = self.least_time + (1 - self.least_time) * u
        # the last draw of every replicate is the read-out at t_0
        t = torch.cat([inside, torch.full_like(inside[:, :, :1], self.least_time)], dim=2)
        corrupt = denoiser.kernel.corrupt
        columns = t.flatten(1).unbind(dim=1)  # a draw at a time: a sequence has one stream
        noisy = [corrupt(tokens, denoiser.alpha(at), generator=generator) for at in columns]
        jumps, readouts = self._asked(denoiser, tokens, torch.stack(noisy, dim=1), t.flatten())
        shape = (b, r, m + 1, length)
        integral = (1 - self.least_time) * jumps.reshape(shape)[:, :, :-1].mean(dim=2)
        return Estimate(integral + readouts.reshape(shape)[:, :, -1])

    def _asked(
        self, denoiser: Timed, tokens: Tokens, noisy: Tensor, t: Float[Tensor, "n"]
    ) -> tuple[Float[Tensor, "n l"], Float[Tensor, "n l"]]:
        """Return ℓ and the nats of a read-out of every noisy sequence, in batches."""
        clean = tokens.unsqueeze(1).expand_as(noisy).flatten(0, 1)
        jumps, readouts = [], []
        for rows in torch.arange(len(t), device=t.device).split(self.batch_size):
            x_t, x_0 = noisy.flatten(0, 1)[rows], clean[rows]
            alpha, slope = denoiser.alpha(t[rows]), denoiser.alpha.slope(t[rows])
            logits = denoiser.at_time(x_t, t[rows]).double()
            require_logits(logits)
            jumps.append(jump_nats(x_t, x_0, logits, alpha, slope))
            readouts.append(readout_nats(denoiser.kernel, x_t, x_0, logits, alpha))
        return torch.cat(jumps), torch.cat(readouts)


def jump_nats(
    noisy: Tokens,
    clean: Tokens,
    logits: Logits,
    alpha: Float[Tensor, "b"],
    slope: Float[Tensor, "b"],
) -> Float[Tensor, "b l"]:
    """Return ℓ, the limit of KL(q(x_s | x_t, x_0) ‖ q(x_s | x_t, x̂_0)) / (t - s) as s → t.

    With a = q(x_t = · | x_0) and â the same of x̂_0, a token jumps back from x_t to z at the rate
    -α'/(αV) a_z/a_{x_t}, and the KL of two jump processes, summed over z in closed form, is

        ℓ = -α' / (αV a_{x_t}) [KL(a ‖ â) + ρ - 1 - log ρ],   ρ = a_{x_t} / â_{x_t}.

    Both parts are at least 0. All is of order α² as α → 0, so it is written in log(V a), by log1p.

    Args:
        noisy: x_t.
        clean: x_0.
        logits: Of x̂_0.
        alpha: α of each sequence.
        slope: dα/dt of each sequence.
    """
    v = logits.shape[-1]
    alpha, slope = (one.to(logits.dtype).unsqueeze(1) for one in (alpha, slope))
    log_model = torch.log1p(alpha.unsqueeze(-1) * (v * logits.softmax(dim=-1) - 1))  # log V â
    at_clean = log_model.gather(-1, clean.unsqueeze(-1)).squeeze(-1)
    at_noisy = log_model.gather(-1, noisy.unsqueeze(-1)).squeeze(-1)
    log_same, log_other = torch.log1p(alpha * (v - 1)), torch.log1p(-alpha)  # log V a: two values
    others = (v - 1) * log_other - (log_model.sum(dim=-1) - at_clean)
    kl = (log_same.exp() * (log_same - at_clean) + log_other.exp() * others) / v
    log_own = torch.where(noisy == clean, log_same, log_other)
    log_rho = log_own - at_noisy
    # at t = 1, which rounding can reach, the bracket is 0 and α is too
    weight = -slope / (alpha.clamp(min=torch.finfo(alpha.dtype).tiny) * log_own.exp())
    return weight * (kl + log_rho.expm1() - log_rho)


def readout_nats(
    kernel: Kernel, noisy: Tokens, clean: Tokens, logits: Logits, alpha: Float[Tensor, "b"]
) -> Float[Tensor, "b l"]:
    """Return -log q(x_0 | x_t, x̂_0), what the step from x_t to the text itself costs."""
    p = kernel.posterior(noisy, logits.softmax(dim=-1), alpha, torch.ones_like(alpha))
    return -p.gather(-1, clean.unsqueeze(-1)).squeeze(-1).log()


def require_uniform(kernel: Kernel) -> None:
    """Refuse a process that masks."""
    if kernel.noise != "uniform":
        raise ValueError(f"this bound is of uniform noise; the network's noise is {kernel.noise}")
