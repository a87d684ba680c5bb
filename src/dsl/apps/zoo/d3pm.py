"""D3PM: a discrete process in T steps, reversed through q(x_s | x_t, x̂_0) (Austin et al., 2021).

The network predicts x̂_0 at a time, and `Kernel.posterior` is the joint form of the paper's
equation 4. The loss is the variational bound with the paper's auxiliary term.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from dsl.apps.zoo.kernel import Kernel, one_hot
from dsl.apps.zoo.timed import Replaced, Timed, TimedFamily, TimedModel, TimedShape
from dsl.core import MASK, Logits, Randomness, Streams, Tokens, uniform
from dsl.families import Loss, Objective, counted, stratified, tallied
from dsl.likelihoods import Effort, Estimate, Estimator, Kind, require_draws, require_logits

TINY = 1e-300
"""Replaces p = 0 in logarithms. There q is 0 as well, and the gradient must not be 0/0."""


@dataclass(frozen=True)
class Vlb:
    """-log P ≤ Σ_k E KL(q(x_s | x_t, x_0) ‖ q(x_s | x_t, x̂_0)), t = k/T and s = (k-1)/T.

    Step 1 is the reconstruction -log p(x_0 | x_1), because q(x_0 | x_1, x_0) is certain; every
    replicate includes it. The prior term KL(q(x_1 | x_0) ‖ π) is 0: every schedule ends at 0.
    """

    timesteps: int = 1000
    """T."""
    replicates: int = 8
    draws: int = 8
    """Steps per replicate without the reconstruction, one in each of `draws` strata."""
    power: float = 2.0
    """k is uniform in k^(1/power), so early steps, where noisy tokens weigh much, are frequent."""
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
        """Draw the steps of all replicates and their weights; the last of each is step 1.

        k - 1 = ⌈(T-1) u^power⌉ has probability ((k-1)/(T-1))^(1/power) - ((k-2)/(T-1))^(1/power).
        """
        b, r, others = len(tokens), self.replicates, self.timesteps - 1
        m = self.draws if others else 0  # with T = 1 there is only the reconstruction
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
    """Draw x_t given that it has a mask, and return the probability of that.

    A text without a mask costs nothing, and at early times nearly every draw is one. The first mask
    is at i with probability α^i (1 - α) / (1 - α^l); later positions are independent. Uniform noise
    is drawn as it is.
    """
    if kernel.noise == "uniform":  # unchanged tokens have a cost, too
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

    With α_s = 1 it is -log p(x_0 | x_t), the cost of drawing the clean token in one step.

    Args:
        kernel: The process.
        noisy: x_t.
        tokens: x_0.
        logits: Logits of x̂_0, in the precision of the result.
        alpha_t: α at the later time, one for each sequence.
        alpha_s: α at the earlier time, which is larger.
    """
    if kernel.noise == "absorbing":
        return _masked_nats(noisy, tokens, logits, (alpha_s - alpha_t) / (1 - alpha_t))
    # float64: a KL of order 1/T is a small difference of terms of order 1
    clean = one_hot(tokens, kernel.vocab_size, torch.float64)
    q = kernel.posterior(noisy, clean, alpha_t, alpha_s)
    p = kernel.posterior(noisy, logits.double().softmax(dim=-1), alpha_t, alpha_s)
    nats = torch.xlogy(q, q) - torch.xlogy(q, p.clamp(min=TINY))
    return nats.sum(dim=-1).to(logits.dtype)


def _masked_nats(
    noisy: Tokens, tokens: Int[Tensor, "b l"], logits: Logits, revealed: Float[Tensor, "b"]
) -> Float[Tensor, "b l"]:
    """Return the cost of masks revealed by s; nothing else in a step is uncertain."""
    hidden = noisy == MASK
    nats = torch.zeros(tokens.shape, dtype=logits.dtype, device=tokens.device)
    share = revealed.unsqueeze(1).expand(tokens.shape)[hidden].to(logits.dtype)
    nats[hidden] = share * cross_entropy(logits[hidden], tokens[hidden], reduction="none")
    return nats


MOST_STEPS = 1_000_000


@dataclass(frozen=True)
class D3pmShape(TimedShape):
    """The shape of D3PM's network; the defaults are those of the paper's absorbing text models.

    Their 1/(T - t + 1) of the remaining tokens in every step is α = 1 - t.
    """

    timesteps: int = 1000
    """T."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.timesteps <= MOST_STEPS:
            raise ValueError(f"timesteps must lie in 1 … {MOST_STEPS:,}, got {self.timesteps}")


@dataclass(frozen=True)
class D3pmOptions:
    """Options of D3PM's objective."""

    hybrid: float = 0.01
    """λ, the weight of the auxiliary term -log p(x_0 | x_t); 0 leaves it out."""

    def __post_init__(self) -> None:
        if not 0 <= self.hybrid <= 1e6:
            raise ValueError(f"hybrid must lie in [0, 1e6], got {self.hybrid}")


class D3pmModel(TimedModel):
    """A timed network whose time has T steps."""

    config: D3pmShape


class D3pmObjective(Objective):
    """One step of each sequence: T KL(q(x_s | x_t, x_0) ‖ p(x_s | x_t)) - λT log p(x_0 | x_t)."""

    model: D3pmModel

    def __init__(self, model: D3pmModel, options: D3pmOptions) -> None:
        super().__init__()
        self.model, self.options = model, options

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Draw one step of T for each sequence, stratified over the global batch."""
        steps, kernel, alpha = self.model.config.timesteps, self.model.kernel, self.model.alpha
        u = stratified(streams, places, batch, tokens.device, torch.float64).squeeze(1)
        k = (u * steps).floor().clamp(max=steps - 1) + 1
        alpha_t, alpha_s = alpha(k / steps), alpha((k - 1) / steps)
        noisy = kernel.corrupt(tokens, alpha_t, generator=streams)
        logits = self.model.at_time(noisy, k / steps).float()
        bound = steps * step_nats(kernel, noisy, tokens, logits, alpha_t, alpha_s)
        parts, ratio = tallied(bound), self.options.hybrid * steps
        if not ratio:
            return Loss(bound.sum(), counted(tokens), parts)
        direct = step_nats(kernel, noisy, tokens, logits, alpha_t, torch.ones_like(alpha_s))
        parts["direct"] = tallied(direct)["all"]
        # divided by the sum of weights, so that gradient clipping acts as in other families
        return Loss((bound + ratio * direct).sum() / (1 + ratio), counted(tokens), parts)


class D3pmFamily(TimedFamily):
    """Discrete diffusion in T steps."""

    name = "d3pm"
    summary = "discrete diffusion in T steps, by masks or by any token: its own sampler and bound"
    Shape = D3pmShape
    Options = D3pmOptions
    Network = D3pmModel
    validated = ("vlb",)
    times = (0.25, 0.5, 0.75)

    def protocol_of(self, network: D3pmModel) -> type:
        """Return `Replaced` for uniform noise, where any token may be wrong."""
        return Replaced if network.kernel.noise == "uniform" else Timed

    def objective(self, network: D3pmModel, options: D3pmOptions) -> Objective:
        """Train by the variational bound and the auxiliary term."""
        return D3pmObjective(network, options)

    def estimators(self, network: D3pmModel, effort: Effort) -> Sequence[Estimator]:
        """Score by the variational bound; one call per replicate is the reconstruction."""
        steps, r, m = network.config.timesteps, effort.replicates, effort.draws
        return [Vlb(steps, r, m - 1, batch_size=effort.batch_size)]
