"""The variational bound of a discrete process in T steps (D3PM's L_vb, equation 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from dsl.denoiser import Timed
from dsl.kernel import Kernel, one_hot
from dsl.likelihoods.estimate import Estimate, Kind, require_draws, require_logits
from dsl.streams import Randomness, uniform
from dsl.types import MASK, Logits, Tokens

TINY = 1e-300
"""What a probability of 0 is taken for: where p is 0 so is q, and 0/0 must not be a gradient."""


@dataclass(frozen=True)
class Vlb:
    """-log P ≤ Σ_k E KL(q(x_s | x_t, x_0) ‖ q(x_s | x_t, x̂_0)), t = k/T and s = (k-1)/T.

    Step 1 is the reconstruction -log p(x_0 | x_1), for q(x_0 | x_1, x_0) is certain; every
    replicate has it. The prior's KL(q(x_1 | x_0) ‖ π) is nothing, because every schedule ends at 0.
    """

    timesteps: int = 1000
    """T."""
    replicates: int = 8
    draws: int = 8
    """Steps in a replicate besides the reconstruction, one in each of as many strata."""
    power: float = 2.0
    """k is uniform in k^(1/power): more often where tokens are rarely changed but weigh much."""
    batch_size: int = 256
    """Sequences in one call of the network."""
    label: ClassVar[str] = "vlb"
    kind: ClassVar[Kind] = "bound"

    def __post_init__(self) -> None:
        require_draws(self.replicates, self.draws)
        if self.timesteps < 1 or self.power < 1:
            raise ValueError(
                f"timesteps and power must be at least 1, got {self.timesteps} and {self.power}"
            )

    @torch.no_grad()
    def __call__(
        self, denoiser: Timed, tokens: Tokens, *, generator: Randomness = None
    ) -> Estimate:
        """Estimate the bound of every sequence."""
        k, weight = self._steps(tokens, generator)
        t, kernel = k / self.timesteps, denoiser.kernel
        alpha_t, alpha_s = denoiser.alpha(t), denoiser.alpha((k - 1) / self.timesteps)
        drawn = [changed(kernel, tokens, a, generator=generator) for a in alpha_t.unbind(1)]
        noisy = torch.stack([x for x, _ in drawn], dim=1)
        weight = weight * torch.stack([chance for _, chance in drawn], dim=1)
        (b, many), rows = k.shape, noisy.flatten(0, 1)
        nats = torch.zeros(rows.shape, dtype=torch.float64, device=tokens.device)
        for part in torch.arange(b * many, device=tokens.device).split(self.batch_size):
            logits = denoiser.at_time(rows[part], t.flatten()[part]).double()
            require_logits(logits)
            alphas = alpha_t.flatten()[part], alpha_s.flatten()[part]
            nats[part] = step_nats(kernel, rows[part], tokens[part // many], logits, *alphas)
        weighted = nats.reshape(noisy.shape) * weight.unsqueeze(-1)
        return Estimate(weighted.unflatten(1, (self.replicates, -1)).sum(dim=2))

    def _steps(
        self, tokens: Tokens, generator: Randomness
    ) -> tuple[Float[Tensor, "b n"], Float[Tensor, "b n"]]:
        """Draw the steps of all replicates, with what each stands for; the last of one is step 1.

        k - 1 = ⌈(T-1) u^power⌉ has probability ((k-1)/(T-1))^(1/power) - ((k-2)/(T-1))^(1/power).
        """
        b, r, others = len(tokens), self.replicates, self.timesteps - 1
        m = self.draws if others else 0  # with T = 1 the reconstruction is all
        device = tokens.device
        u = uniform((b, r, m), generator=generator, dtype=torch.float64, device=device)
        u = (torch.arange(m, device=device) + u) / m
        place = (others * u**self.power).ceil().clamp(1, others)
        p = (place / others) ** (1 / self.power) - ((place - 1) / others) ** (1 / self.power)
        one = torch.ones(b, r, 1, dtype=torch.float64, device=device)
        k, weight = torch.cat([place + 1, one], dim=2), torch.cat([1 / (m * p), one], dim=2)
        return k.flatten(1), weight.flatten(1)


def changed(
    kernel: Kernel, tokens: Tokens, alpha: Float[Tensor, "b"], *, generator: Randomness = None
) -> tuple[Tokens, Float[Tensor, "b"]]:
    """Draw x_t among those that may cost something, and return how likely these are together.

    A text without a mask costs nothing: early in an absorbing process it would be all one draws.
    The first mask is at i with probability α^i (1 - α) / (1 - α^l), and those after it are free.
    """
    if kernel.noise == "uniform":  # a token that is still right costs something, too
        return kernel.corrupt(tokens, alpha, generator=generator), torch.ones_like(alpha)
    b, length = tokens.shape
    device = tokens.device
    u = uniform((b, length + 1), generator=generator, dtype=torch.float64, device=device)
    a = alpha.double().unsqueeze(1)
    chance = -torch.expm1(length * a.log())
    first = (torch.log1p(-u[:, :1] * chance) / a.log()).floor().clamp(max=length - 1)
    place = torch.arange(length, device=device)
    hidden = (place == first) | ((place > first) & (u[:, 1:] >= a))
    return tokens.masked_fill(hidden, MASK), chance.squeeze(1)


def step_nats(
    kernel: Kernel,
    noisy: Tokens,
    tokens: Tokens,
    logits: Logits,
    alpha_t: Float[Tensor, "b"],
    alpha_s: Float[Tensor, "b"],
) -> Float[Tensor, "b l"]:
    """Return KL(q(x_s | x_t, x_0) ‖ q(x_s | x_t, x̂_0)) at every position.

    With α_s = 1 it is -log p(x_0 | x_t), the surprise at reading the clean token off at once.

    Args:
        kernel: The process.
        noisy: x_t.
        tokens: x_0.
        logits: Those of x̂_0, as precise as the result shall be.
        alpha_t: α at the later time, one for each sequence.
        alpha_s: α at the earlier time, which is larger.
    """
    if kernel.noise == "absorbing":
        return _masked_nats(noisy, tokens, logits, (alpha_s - alpha_t) / (1 - alpha_t))
    # float64: a KL of order 1/T is the small difference of terms of order 1
    clean = one_hot(tokens, kernel.vocab_size, torch.float64)
    q = kernel.posterior(noisy, clean, alpha_t, alpha_s)
    p = kernel.posterior(noisy, logits.double().softmax(dim=-1), alpha_t, alpha_s)
    nats = torch.xlogy(q, q) - torch.xlogy(q, p.clamp(min=TINY))
    return nats.sum(dim=-1).to(logits.dtype)


def _masked_nats(
    noisy: Tokens, tokens: Int[Tensor, "b l"], logits: Logits, revealed: Float[Tensor, "b"]
) -> Float[Tensor, "b l"]:
    """Charge a mask that is revealed by s for its token; nothing else is uncertain in a step."""
    hidden = noisy == MASK
    nats = torch.zeros(tokens.shape, dtype=logits.dtype, device=tokens.device)
    share = revealed.unsqueeze(1).expand(tokens.shape)[hidden].to(logits.dtype)
    nats[hidden] = share * cross_entropy(logits[hidden], tokens[hidden], reduction="none")
    return nats
