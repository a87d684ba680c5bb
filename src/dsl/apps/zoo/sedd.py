"""Samplers that walk score ratios: Tweedie's τ-leaping, and Euler's steps of the reverse rates."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from dsl.apps.zoo.kernel import Kernel, one_hot
from dsl.apps.zoo.protocols import AtTime, Scored
from dsl.apps.zoo.timed import TimedModel, TimedShape, answered, drawn, noised, unfinished
from dsl.core import MASK, Logits, Mask, Randomness, Schedule, Streams, Tokens, uniform
from dsl.families import Family, Level, Loss, Objective, counted, stratified, tallied
from dsl.likelihoods import Effort, Estimate, Estimator, Kind, require_draws, require_logits
from dsl.samplers import END, Draw, State, require_steps

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


LEAST_TIME = 1e-3
"""Training asks at no earlier time."""
FLOOR = 1e-3
"""α_1, which keeps σ = -log α finite."""
TIMES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Where calibration asks."""


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


@dataclass(frozen=True)
class SeddOptions:
    """Nothing: the objective is the bound. The noise and its schedule belong to the network."""


class SeddModel(TimedModel):
    """The network with a time, read as logarithms of score ratios."""

    @property
    def alpha(self) -> Schedule:
        """How many tokens are left alone at a time: some for ever."""
        return Floored(super().alpha)

    def log_score(self, tokens: Tokens, t: Float[Tensor, "b"]) -> Logits:
        """Return log q_t(x with v at position i) / q_t(x); a token's ratio to itself is 1.

        A mask's ratios are those of a uniform posterior, α/(1 - α)/v, times what the network says.
        At visible positions of a masked text the ratios are not trained, and nobody reads them.
        """
        log_score = self.at_time(tokens, t)
        if self.kernel.noise == "absorbing":
            alpha = self.alpha(t)
            scale = (alpha / (1 - alpha)).log() - math.log(self.vocab_size)
            log_score = log_score + scale.view(-1, 1, 1)
        own = tokens.unsqueeze(-1) == torch.arange(self.vocab_size, device=tokens.device)
        return log_score.masked_fill(own, 0.0)


class SeddObjective(Objective):
    """Denoising score entropy, weighted by σ'(t): the bound, but for its prior and first 1/1000."""

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
class AtScoreTime(AtTime):
    """The same corruption, and the clean token read off the score ratios."""

    def ask(
        self, network: Any, tokens: Tokens, *, generator: Streams
    ) -> tuple[Float[Tensor, "n v"], Mask]:
        """Corrupt the text and ask what each token is, as all the others tell it."""
        times = torch.full((len(tokens),), self.t, device=tokens.device)
        alpha = network.alpha(times)
        noisy = network.kernel.corrupt(tokens, alpha, generator=generator)
        log_score = network.log_score(noisy, times)
        if network.kernel.noise == "absorbing":  # the ratios of a mask are a multiple of p
            at = noisy == MASK
            return log_score[at], at
        at = torch.ones_like(noisy, dtype=torch.bool)
        return leave_one_out(log_score, alpha)[at], at


def leave_one_out(log_score: Logits, alpha: Float[Tensor, "b"]) -> Logits:
    """Return log p of the clean token given all other positions, under uniform noise.

    Ratios are to each other as α p + (1 - α)/v. A network's may lie below what noise alone gives,
    and p is 1e-6 there.
    """
    alpha = alpha.double().view(-1, 1, 1)
    marginal = log_score.double().softmax(dim=-1)
    p = (marginal - (1 - alpha) / log_score.shape[-1]) / alpha
    return p.clamp(min=1e-6).log()


class SeddFamily(Family):
    """Score entropy discrete diffusion."""

    name = "sedd"
    summary = "score ratios of discrete diffusion, by masks or any tokens: its own samplers"
    Shape = TimedShape
    Options = SeddOptions
    protocol = Scored
    validated = ("score-entropy",)
    llama = False

    def build(self, shape: TimedShape) -> nn.Module:
        """Make an untrained network."""
        return SeddModel(shape)

    def objective(self, network: SeddModel, options: SeddOptions) -> Objective:
        """Train by score entropy."""
        return SeddObjective(network)

    def estimators(self, network: SeddModel, effort: Effort) -> Sequence[Estimator]:
        """Score by the bound that training minimises."""
        return [ScoreEntropy(effort.replicates, effort.draws, batch_size=effort.batch_size)]

    def levels(self, network: SeddModel) -> Sequence[Level]:
        """Ask at times of the network's own process."""
        return [AtScoreTime(t) for t in TIMES]


Chances = Float[Tensor, "b l states"]
Step = Callable[[Scored, Tokens, Logits, float, float], Chances]
"""How x_s is drawn given x_t and its scores: rows over the kernel's states, up to a factor."""
NEVER = -1e4
"""A log-score of which nothing is left, and which is still finite."""


@dataclass(frozen=True)
class Tweedie:
    """SEDD's analytic sampler, for networks of score ratios.

    T steps that would be exact if positions were independent; the last noise is then removed.

    The network's α must stay above 0 at t = 1, where its scores would vanish.
    """

    num_steps: int
    draw: Draw = Draw()
    """Which token a position jumps to; how often it jumps stays what the scores say."""
    asks: ClassVar[type] = Scored

    def __post_init__(self) -> None:
        require_steps(self.num_steps)

    def steps(
        self, denoiser: Scored, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Walk from t = 1 to the end of the grid, then draw clean tokens."""
        return walk(denoiser, start, self.num_steps, tweedie, self.draw, generator)


@dataclass(frozen=True)
class Euler:
    """Euler steps of the reverse rates, for networks of score ratios.

    In each of T steps a position jumps with its reverse rate times the step's width.
    """

    num_steps: int
    draw: Draw = Draw()
    """Which token a position jumps to; how often it jumps stays what the scores say."""
    asks: ClassVar[type] = Scored

    def __post_init__(self) -> None:
        require_steps(self.num_steps)

    def steps(
        self, denoiser: Scored, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Walk from t = 1 to the end of the grid, then draw clean tokens by Tweedie's formula."""
        return walk(denoiser, start, self.num_steps, euler, self.draw, generator)


def walk(
    denoiser: Scored,
    start: State,
    num_steps: int,
    step: Step,
    draw: Draw,
    generator: Randomness,
) -> Iterator[State]:
    """Yield the state after every step, and after the removal of what noise is left."""
    state = noised(denoiser, start, generator) if start.step == 0 else start
    times = [1 - (1 - END) * k / num_steps for k in range(num_steps + 1)]
    for k in range(start.step, num_steps + 1):
        last = k == num_steps
        t, s = times[k], 0.0 if last else times[k + 1]
        live = unfinished(denoiser, state)
        log_score, state = answered(denoiser, denoiser.log_score, state, t, live)
        score = sharpened(log_score, state.tokens, draw)
        p = (tweedie if last else step)(denoiser, state.tokens, score, t, s)
        p = p[..., : denoiser.vocab_size] if last else p  # no mask is left
        state = replace(drawn(state, p, denoiser.kernel, live, generator), step=k + 1)
        yield state


def sharpened(log_score: Logits, noisy: Tokens, draw: Draw) -> Logits:
    """Return scores whose sum over other tokens is kept, and distributed as `draw` would."""
    own = visible(noisy, log_score.shape[-1])
    others = log_score.masked_fill(own, NEVER).clamp(min=NEVER)
    p = draw.probabilities(others.flatten(0, 1)).reshape(others.shape)
    return own + others.exp().sum(dim=-1, keepdim=True) * p


def tweedie(denoiser: Scored, noisy: Tokens, score: Logits, t: float, s: float) -> Chances:
    """Return q_s(y)/q_t(x) · q(x_t = x | x_s = y): the scores, the noise from s to t undone.

    Scores that belong to no distribution can make it negative, which is 0.
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


def euler(denoiser: Scored, noisy: Tokens, score: Logits, t: float, s: float) -> Chances:
    """Return (t - s) σ'(t) Q(y, x) s_y for y ≠ x, and what is left for staying x."""
    now = torch.tensor(t, dtype=torch.float64)
    width = (t - s) * float(-denoiser.alpha.slope(now) / denoiser.alpha(now))
    if denoiser.kernel.noise == "uniform":
        width = width / denoiser.vocab_size
    return jumps(denoiser.kernel, noisy, width * score)


def jumps(kernel: Kernel, noisy: Tokens, chances: Logits) -> Chances:
    """Complete chances to jump by the chance to stay, if any is left.

    A mask stays in a column of its own; the chance of a visible token to become itself is none.
    """
    own = visible(noisy, kernel.vocab_size)
    away = chances.masked_fill(own, 0.0)
    stay = (1 - away.sum(dim=-1, keepdim=True)).clamp(min=0)
    if kernel.noise == "uniform":
        return away + own * stay
    return torch.cat([away, stay], dim=-1)


def visible(noisy: Tokens, vocab_size: int) -> Bool[Tensor, "b l v"]:
    """Return whether v is the token that stands at a position; at a mask none is."""
    return noisy.unsqueeze(-1) == torch.arange(vocab_size, device=noisy.device)
