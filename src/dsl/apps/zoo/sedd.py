"""SEDD: score ratios of discrete diffusion, trained by score entropy (Lou et al., 2024).

The network predicts q_t(y) / q_t(x) for every text y that differs from x in one token. Samplers:
Tweedie's τ-leaping, and Euler steps of the reverse rates.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dsl.apps.zoo.kernel import Kernel, one_hot
from dsl.apps.zoo.timed import (
    AtTime,
    Process,
    TimedFamily,
    TimedModel,
    TimedShape,
    answered,
    drawn,
    noised,
    unfinished,
)
from dsl.core import MASK, Logits, Mask, Randomness, Schedule, Streams, Tokens, uniform
from dsl.families import Loss, Objective, counted, stratified, tallied
from dsl.likelihoods import Effort, Estimate, Estimator, Kind, require_draws, require_logits
from dsl.samplers import END, Draw, State, require_steps

LEAST_TIME = 1e-3
"""The smallest time in training."""
FLOOR = 1e-3
"""α_1, which keeps σ = -log α finite."""
EDGE = 1e-9
"""The bound's times are at least this far from 0 and 1, where ratios are infinite."""
NEVER = -1e4
"""A finite log-score whose exponential is 0."""


@runtime_checkable
class Scored(Process, Protocol):
    """A network of score ratios: how much likelier each text with one other token is."""

    def log_score(self, tokens: Tokens, t: Float[Tensor, "b"]) -> Logits:
        """Return log q_t(x with v at position i) / q_t(x) for every position and real token v."""
        ...


@dataclass(frozen=True)
class Floored:
    """α = α_1 + (1 - α_1) β(t) of a schedule β; SEDD's log-linear noise if β = 1 - t."""

    inner: Schedule
    floor: float = FLOOR

    def __call__(self, t: Tensor) -> Tensor:
        """Return α(t)."""
        return self.floor + (1 - self.floor) * self.inner(t)

    def slope(self, t: Tensor) -> Tensor:
        """Return dα/dt."""
        return (1 - self.floor) * self.inner.slope(t)


class SeddModel(TimedModel):
    """A timed network whose outputs are log score ratios."""

    @property
    def alpha(self) -> Schedule:
        """The schedule; it ends above 0."""
        return Floored(super().alpha)

    def log_score(self, tokens: Tokens, t: Float[Tensor, "b"]) -> Logits:
        """Return log q_t(x with v at position i) / q_t(x); a token's ratio to itself is 1.

        A mask's ratios are those of a uniform posterior, α/(1 - α)/v, times the network's output.
        At visible positions of a masked text the ratios are neither trained nor used.
        """
        log_score = self.at_time(tokens, t)
        if self.kernel.noise == "absorbing":
            alpha = self.alpha(t)
            scale = (alpha / (1 - alpha)).log() - math.log(self.vocab_size)
            log_score = log_score + scale.view(-1, 1, 1)
        return log_score.masked_fill(visible(tokens, self.vocab_size), 0.0)


@dataclass(frozen=True)
class SeddOptions:
    """SEDD's objective has no options; noise and schedule belong to the network."""


class SeddObjective(Objective):
    """Denoising score entropy, weighted by σ'(t): the bound without prior and times below 1e-3."""

    model: SeddModel

    def __init__(self, model: SeddModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Corrupt each sequence to its own time, the times stratified over the global batch."""
        u = stratified(streams, places, batch, tokens.device).squeeze(1)
        t = (1 - LEAST_TIME) * u + LEAST_TIME
        noisy = corrupted(self.model, tokens, t, generator=streams)
        losses = path_losses(self.model, noisy, tokens, t)
        return Loss(losses.sum(), counted(tokens), tallied(losses))


@dataclass(frozen=True)
class ScoreEntropy:
    """-log P ≤ KL(q_1 ‖ π) + ∫ σ' Σ_i Σ_y Q(y, x_i) [s_y - r_y log s_y + r_y (log r_y - 1)] dt.

    P is the reverse process in continuous time, from π at t = 1 to t = 0. Below the smallest time
    of training the network extrapolates.
    """

    replicates: int = 8
    draws: int = 8
    """Times per replicate, one in each of `draws` strata."""
    power: float = 2.0
    """t = u^power draws small times more often, where the weight of a noisy token is 1/t. With
    power 1 the variance is infinite."""
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
    """Draw x_t given x_0, such that every token is masked at t = 1.

    A schedule that ends at α_1 > 0 leaves visible tokens, which have no probability under the
    prior. Masks are therefore drawn with (α - α_1) / (1 - α_1). The reveal rate -α'/(1 - α) is the
    same for both, so the integrand does not change.
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

    It is computed in the precision of t.
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
    It is computed as Σ Q r (e^d - 1 - d) with d = log s - log r, where no large terms cancel.
    """
    if kernel.noise == "uniform":
        log_q = kernel.log_likelihood(clean, alpha)  # symmetric in x_t and x_0
        log_r = log_q - log_q.gather(-1, noisy.unsqueeze(-1))
        d = log_score - log_r  # 0 for the token itself: log s = log r = 0
        return (log_r.exp() * (d.expm1() - d)).mean(dim=-1)
    hidden = noisy == MASK
    odds = (alpha / (1 - alpha)).unsqueeze(1).expand(noisy.shape)[hidden]
    log_p = log_score[hidden] - odds.log().unsqueeze(-1)  # r = odds for x_0, 0 for the others
    own = log_p.gather(-1, clean[hidden].unsqueeze(-1)).squeeze(-1)
    losses = torch.zeros(noisy.shape, dtype=log_score.dtype, device=noisy.device)
    losses[hidden] = odds * (log_p.exp().sum(dim=-1) - 1 - own)
    return losses


def last_alpha(network: Scored) -> float:
    """Return α_1, the share of tokens that the process never changes."""
    return float(network.alpha(torch.ones((), dtype=torch.float64)))


def prior_nats(kernel: Kernel, alpha: float) -> float:
    """Return KL(q_1 ‖ π) of one token; 0 for masks, because `corrupted` masks every token."""
    if kernel.noise == "absorbing":
        return 0.0
    v = kernel.vocab_size
    own, other = 1 + (v - 1) * alpha, 1 - alpha  # v times the probability of x_0, and of another
    return (own * math.log(own) + (v - 1) * other * math.log(other)) / v


def repeated(generator: Randomness, times: int) -> Randomness:
    """Repeat every stream for `times` consecutive rows."""
    if not isinstance(generator, Streams):
        return generator
    return generator.take(row for row in range(len(generator)) for _ in range(times))


@dataclass(frozen=True)
class AtScoreTime(AtTime):
    """Tokens corrupted up to time t, and predicted from the score ratios."""

    def ask(
        self, network: Any, tokens: Tokens, *, generator: Streams
    ) -> tuple[Float[Tensor, "n v"], Mask]:
        """Corrupt the text and predict each token from all the others."""
        times = torch.full((len(tokens),), self.t, device=tokens.device)
        alpha = network.alpha(times)
        noisy = network.kernel.corrupt(tokens, alpha, generator=generator)
        log_score = network.log_score(noisy, times)
        if network.kernel.noise == "absorbing":  # the ratios of a mask are proportional to p
            at = noisy == MASK
            return log_score[at], at
        at = torch.ones_like(noisy, dtype=torch.bool)
        return leave_one_out(log_score, alpha)[at], at


def leave_one_out(log_score: Logits, alpha: Float[Tensor, "b"]) -> Logits:
    """Return log p of the clean token given all other positions, under uniform noise.

    Ratios are proportional to α p + (1 - α)/v. Where a network's ratio is below the noise term
    alone, p is 1e-6.
    """
    alpha = alpha.double().view(-1, 1, 1)
    marginal = log_score.double().softmax(dim=-1)
    p = (marginal - (1 - alpha) / log_score.shape[-1]) / alpha
    return p.clamp(min=1e-6).log()


class SeddFamily(TimedFamily):
    """Score entropy discrete diffusion."""

    name = "sedd"
    summary = "score ratios of discrete diffusion, by masks or any tokens: its own samplers"
    Shape = TimedShape
    Options = SeddOptions
    Network = SeddModel
    protocol = Scored
    validated = ("score-entropy",)
    level = AtScoreTime

    def objective(self, network: SeddModel, options: SeddOptions) -> Objective:
        """Train by score entropy."""
        return SeddObjective(network)

    def estimators(self, network: SeddModel, effort: Effort) -> Sequence[Estimator]:
        """Score by the bound that training minimises."""
        return [ScoreEntropy(effort.replicates, effort.draws, batch_size=effort.batch_size)]


@dataclass(frozen=True)
class _ScoreSampler:
    """T steps from t = 1 to the end of the grid, then a Tweedie step that draws clean tokens."""

    num_steps: int
    draw: Draw = Draw()
    """Sharpens the choice of a new token. The rate of jumps stays as the scores give it."""
    asks: ClassVar[type] = Scored

    def __post_init__(self) -> None:
        require_steps(self.num_steps)

    @abstractmethod
    def back(
        self, denoiser: Scored, noisy: Tokens, score: Logits, t: float, s: float
    ) -> Float[Tensor, "b l states"]:
        """Return unnormalised probabilities of x_s at every position."""

    def steps(
        self, denoiser: Scored, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Yield the state after every step, and after the removal of the remaining noise."""
        state = noised(denoiser, start, generator) if start.step == 0 else start
        times = [1 - (1 - END) * k / self.num_steps for k in range(self.num_steps + 1)]
        for k in range(start.step, self.num_steps + 1):
            live = unfinished(denoiser, state)
            log_score, state = answered(denoiser, denoiser.log_score, state, times[k], live)
            score = sharpened(log_score, state.tokens, self.draw)
            if k < self.num_steps:
                p = self.back(denoiser, state.tokens, score, times[k], times[k + 1])
            else:  # no mask is left
                p = tweedie(denoiser, state.tokens, score, times[k], 0.0)
                p = p[..., : denoiser.vocab_size]
            state = replace(drawn(state, p, denoiser.kernel, live, generator), step=k + 1)
            yield state


@dataclass(frozen=True)
class Tweedie(_ScoreSampler):
    """SEDD's analytic sampler, for networks of score ratios.

    T steps that are exact if positions are independent, then one that removes the remaining noise.

    The network's α must stay above 0 at t = 1, where its scores would vanish.
    """

    def back(
        self, denoiser: Scored, noisy: Tokens, score: Logits, t: float, s: float
    ) -> Float[Tensor, "b l states"]:
        """Undo the noise from s to t by Tweedie's formula."""
        return tweedie(denoiser, noisy, score, t, s)


@dataclass(frozen=True)
class Euler(_ScoreSampler):
    """Euler steps of the reverse rates, for networks of score ratios.

    In each of T steps a position jumps with its reverse rate times the step's width.
    """

    def back(
        self, denoiser: Scored, noisy: Tokens, score: Logits, t: float, s: float
    ) -> Float[Tensor, "b l states"]:
        """Jump with the reverse rates at t."""
        return euler(denoiser, noisy, score, t, s)


def sharpened(log_score: Logits, noisy: Tokens, draw: Draw) -> Logits:
    """Redistribute the scores of other tokens as `draw` does; their sum is unchanged."""
    own = visible(noisy, log_score.shape[-1])
    others = log_score.masked_fill(own, NEVER).clamp(min=NEVER)
    p = draw.probabilities(others.flatten(0, 1)).reshape(others.shape)
    return own + others.exp().sum(dim=-1, keepdim=True) * p


def tweedie(
    denoiser: Scored, noisy: Tokens, score: Logits, t: float, s: float
) -> Float[Tensor, "b l states"]:
    """Return q_s(y)/q_t(x) · q(x_t = x | x_s = y), which undoes the noise from s to t.

    Negative values, which inconsistent scores can cause, are set to 0.
    """
    times = torch.tensor([t, s], dtype=torch.float64)
    alpha_t, alpha_s = (float(alpha) for alpha in denoiser.alpha(times))
    stay = alpha_t / alpha_s
    if denoiser.kernel.noise == "absorbing":
        return jumps(denoiser.kernel, noisy, (1 / stay - 1) * score)
    v = denoiser.vocab_size
    before = (score - (1 - stay) * score.mean(dim=-1, keepdim=True)) / stay
    reach = stay * one_hot(noisy, v, score.dtype) + (1 - stay) / v
    return before.clamp(min=0) * reach


def euler(
    denoiser: Scored, noisy: Tokens, score: Logits, t: float, s: float
) -> Float[Tensor, "b l states"]:
    """Return (t - s) σ'(t) Q(y, x) s_y for y ≠ x, and the remaining probability for y = x."""
    now = torch.tensor(t, dtype=torch.float64)
    width = (t - s) * float(-denoiser.alpha.slope(now) / denoiser.alpha(now))
    if denoiser.kernel.noise == "uniform":
        width = width / denoiser.vocab_size
    return jumps(denoiser.kernel, noisy, width * score)


def jumps(kernel: Kernel, noisy: Tokens, chances: Logits) -> Float[Tensor, "b l states"]:
    """Add the probability to stay, at least 0, to the probabilities of jumps.

    A mask stays in a column of its own.
    """
    own = visible(noisy, kernel.vocab_size)
    away = chances.masked_fill(own, 0.0)
    stay = (1 - away.sum(dim=-1, keepdim=True)).clamp(min=0)
    if kernel.noise == "uniform":
        return away + own * stay
    return torch.cat([away, stay], dim=-1)


def visible(noisy: Tokens, vocab_size: int) -> Bool[Tensor, "b l v"]:
    """Return one-hot rows of the tokens; all False at a mask."""
    return noisy.unsqueeze(-1) == torch.arange(vocab_size, device=noisy.device)
