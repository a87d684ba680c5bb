"""CANDI: masked diffusion whose masked tokens are also seen through Gaussian noise.

The noise falls as tokens are revealed. Network, objective, bound and sampler are for mixtures of
clean tokens and noisy embeddings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from dsl.apps.zoo.timed import TICKS, AtTime, TimedFamily, require_clock
from dsl.core import (
    MASK,
    Codebook,
    Endpoints,
    Linear,
    Logits,
    Mask,
    Network,
    Noisy,
    Randomness,
    Streams,
    Tokens,
    advance,
    normal,
    observe,
    posterior_mean,
    require_tokens,
    sphere,
    uniform,
)
from dsl.families import Loss, Objective, counted, masked, surprise, tallied
from dsl.likelihoods import (
    Effort,
    Estimate,
    Estimator,
    Kind,
    cross_entropy,
    observations,
    require_draws,
    require_logits,
)
from dsl.models import (
    MDLM,
    NetworkShape,
    ShapedNetwork,
    codebook_for,
    initial_table,
    require_codebook,
)
from dsl.samplers import Draw, State, require_steps


@runtime_checkable
class Mixed(Network, Protocol):
    """A network over clean tokens and noisy embeddings, with a time input.

    At time t a token is hidden with probability t; hidden tokens have SNR γ(t).
    """

    @property
    def codebook(self) -> Codebook:
        """The unit-norm embeddings x_v of the tokens."""
        ...

    def snr_at(self, t: Tensor) -> Tensor:
        """Return γ(t) of the hidden tokens."""
        ...

    def snr_slope(self, t: Tensor) -> Tensor:
        """Return dγ/dt, which is at most 0."""
        ...

    def at_mixture(self, z: Endpoints, t: Float[Tensor, "b"]) -> Logits:
        """Return clean-token logits at the given time of each sequence.

        The evidence e of the state is the noisy embedding where a token is masked, and 0 elsewhere.
        """
        ...


@dataclass(frozen=True)
class Rank:
    """γ(t) at which a given wrong token outranks the right one with probability r, linear in t.

    On a simplex of v unit vectors r = Φ(-√(γ v / (2(v - 1)))); r = ½ is pure noise.
    """

    vocab_size: int
    low: float = 0.01
    """r at t = 0."""
    high: float = 0.49
    """r at t = 1."""

    def __post_init__(self) -> None:
        if not 0 < self.low < self.high < 0.5:
            raise ValueError(
                f"ranks must satisfy 0 < rank_min < rank_max < 0.5, got {self.low} and {self.high}"
            )

    def __call__(self, t: Tensor) -> Tensor:
        """Return γ(t) = 2 (v - 1)/v Φ⁻¹(r)²."""
        return self._scale * self._quantile(t).square()

    def slope(self, t: Tensor) -> Tensor:
        """Return dγ/dt, by dΦ⁻¹/dr = √(2π) e^{Φ⁻¹(r)²/2}."""
        q = self._quantile(t)
        steepness = math.sqrt(2 * math.pi) * (q.square() / 2).exp()
        return 2 * self._scale * q * steepness * (self.high - self.low)

    @property
    def _scale(self) -> float:
        return 2 * (self.vocab_size - 1) / self.vocab_size

    def _quantile(self, t: Tensor) -> Tensor:
        q: Tensor = torch.special.ndtri(self.low + (self.high - self.low) * t)
        return q


@dataclass(frozen=True)
class CandiShape(NetworkShape):
    """The shape of CANDI's network."""

    cond_dim: int = 128
    codebook_dim: int = 64
    codebook: Literal["random", "simplex"] = "random"
    """Embeddings that the noise is added to; not trained. A simplex is equivalent to one-hot."""
    rank_min: float = 0.01
    """The probability that a wrong token outranks the right one at t = 0."""
    rank_max: float = 0.49
    """The same at t = 1. Published: 0.25, where the state still carries half a nat per token."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_codebook(self.vocab_size, self.codebook_dim, self.codebook)
        require_clock(self.cond_dim, self.llama)
        Rank(self.vocab_size, self.rank_min, self.rank_max)  # raises for invalid ranks


class CandiModel(ShapedNetwork):
    """MDLM's network with a time input, and one more layer that reads the noisy states."""

    codebook: Codebook

    def __init__(self, config: CandiShape) -> None:
        super().__init__(config)
        self.config = config
        v, d = config.vocab_size, config.codebook_dim
        self.register_buffer("codebook", sphere.unit(initial_table(config.codebook, v, d)))
        self.project = nn.Linear(d, config.hidden_dim, bias=False)
        self.backbone = MDLM(v + 1, cond_dim=config.cond_dim, **config.blocks)
        self._snr = Rank(v, config.rank_min, config.rank_max)

    def snr_at(self, t: Tensor) -> Tensor:
        """Return γ(t) of the hidden tokens."""
        return self._snr(t)

    def snr_slope(self, t: Tensor) -> Tensor:
        """Return dγ/dt."""
        return self._snr.slope(t)

    def at_mixture(self, z: Endpoints, t: Float[Tensor, "b"]) -> Logits:
        """Return clean-token logits; the input of a hidden token is mask row plus scaled state."""
        require_tokens(z.tokens, self.vocab_size, least=MASK)
        assert z.e is not None, "a mixture has the noisy state of every hidden token"
        hidden = z.tokens == MASK
        gamma = self.snr_at(t).view(-1, 1, 1).to(z.e)
        unit = z.e / (gamma + gamma.square() / z.e.shape[-1]).sqrt()
        x = self.backbone.vocab_embed(z.tokens.masked_fill(hidden, self.vocab_size))
        x = x + self.project(unit) * hidden.unsqueeze(-1)
        clock = (TICKS * t).to(x.dtype)
        logits = self.backbone.head(self.backbone.features(x, clock), clock)
        return logits[..., : self.vocab_size]


@dataclass(frozen=True)
class MixedBound:
    """-log P ≤ ∫ E Σ_{i hidden} (-log P(x_i | z_t)/t + ½ |γ'(t)| ‖x_i - x̂_i‖²) dt + ½ l γ(1).

    P is the reverse process from pure noise: it reveals a hidden token at the rate 1/t from its
    posterior, and moves the others by x̂ dγ + √dγ ε. The first term is the cost of the reveals, the
    second that of the Gaussian steps, the last that of treating z at t = 1 as noise of variance
    γ(1). Without noise (γ = 0) only the first term is left, and it is ROAR's.

    The integral is over the times of reveals. With n of l tokens hidden, the weight of t is 1/n
    times Beta(n, l - n + 1), the distribution of the n-th smallest of l uniform numbers. So n is
    drawn as in ROAR, and t is one of the uniform numbers that choose the hidden set.
    """

    replicates: int = 8
    draws: int = 8
    """States per replicate; the number of hidden tokens is stratified as in ROAR."""
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
        """Estimate the cost of the reveals, and that of the Gaussian steps."""
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


@dataclass(frozen=True)
class CandiOptions:
    """Options of CANDI's objective."""

    loss: Literal["reveals", "bound"] = "reveals"
    """The loss: the cost of the reveals, -log p / t, as published; or a bound, which adds the cost
    of the Gaussian steps. Both have the same optimum."""


class CandiObjective(Objective):
    """The cost of the reveals and of the Gaussian steps: the bound without its constant."""

    model: CandiModel

    def __init__(self, model: CandiModel, config: CandiOptions) -> None:
        super().__init__()
        self.model, self.config = model, config

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Hide tokens of each sequence up to its own time, and predict them."""
        at, hidden = masked(Linear(), tokens, streams, places, batch)
        t = at.t
        state = mixture(self.model, tokens, hidden, t.squeeze(1), streams)
        logits = self.model.at_mixture(state, t.squeeze(1))[hidden].float()
        right = tokens[hidden]
        losses = surprise(logits, tokens, hidden)
        codebook = self.model.codebook
        squared = torch.zeros(tokens.shape, device=tokens.device)
        squared[hidden] = (codebook[right] - posterior_mean(logits, codebook)).square().sum(dim=-1)
        reveals, steps = losses / t, -0.5 * self.model.snr_slope(t) * squared
        parts = tallied(reveals + steps) | {
            "masked": (losses.detach().sum(), hidden.sum()),
            "error": (squared.detach().sum(), hidden.sum()),
        }
        wanted = reveals if self.config.loss == "reveals" else reveals + steps
        return Loss(wanted.sum(), counted(tokens), parts)


def mixture(
    network: Mixed, tokens: Tokens, hidden: Mask, t: Float[Tensor, "b"], generator: Randomness
) -> Endpoints:
    """Replace hidden tokens by their noisy embeddings at a time."""
    x = network.codebook[tokens]
    snr = network.snr_at(t).unsqueeze(1) * hidden
    return Endpoints(
        tokens.masked_fill(hidden, MASK), observe(x, snr.to(x.dtype), generator=generator)
    )


@dataclass(frozen=True)
class AtMixture(AtTime):
    """A share t of the tokens hidden, and seen through the noise of time t."""

    def ask(
        self, network: Any, tokens: Tokens, *, generator: Streams
    ) -> tuple[Float[Tensor, "n v"], Mask]:
        """Hide a share t of the tokens, and predict them."""
        at = uniform(tokens.shape, generator=generator, device=tokens.device) < self.t
        times = torch.full((len(tokens),), self.t, device=tokens.device)
        state = mixture(network, tokens, at, times, generator)
        return network.at_mixture(state, times)[at], at


class CandiFamily(TimedFamily):
    """Masks with Gaussian noise."""

    name = "candi"
    summary = "masked diffusion with Gaussian noise on masked tokens: its own sampler and bound"
    Shape = CandiShape
    Options = CandiOptions
    Network = CandiModel
    protocol = Mixed
    validated = ("mixed-bound",)
    level = AtMixture

    def shape(self, vocab_size: int, length: int, chosen: Mapping[str, Any]) -> NetworkShape:
        """Complete a shape; the codebook is a simplex if the vocabulary is small enough."""
        return super().shape(vocab_size, length, {**codebook_for(vocab_size, chosen), **chosen})

    def objective(self, network: CandiModel, options: CandiOptions) -> Objective:
        """Train by the cost of the reveals, or by the bound."""
        return CandiObjective(network, options)

    def estimators(self, network: CandiModel, effort: Effort) -> Sequence[Estimator]:
        """Score by the bound of its own process."""
        return [MixedBound(effort.replicates, effort.draws, effort.batch_size)]


@dataclass(frozen=True)
class MixedAncestral:
    """CANDI's ancestral sampler, for networks of clean and noisy tokens.

    T equal steps of time from noise to tokens, through q(x_s, z_s | x_t, z_t, x̂_0).

    A step from t to s draws every hidden token. A share (t - s)/t of them is revealed; the states
    of the others advance as in the channel, z + x dγ + √dγ ε. A text of one token is therefore
    drawn exactly in any number of steps.
    """

    num_steps: int
    draw: Draw = Draw()
    asks: ClassVar[type] = Mixed

    def __post_init__(self) -> None:
        require_steps(self.num_steps)

    def steps(
        self, denoiser: Mixed, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Yield the state after every step; z is None when every token is revealed.

        The SNR of a state is that of its hidden tokens.
        """
        state = noised(denoiser, start, generator) if start.step == 0 else start
        for k in range(start.step, self.num_steps):
            t, s = 1 - k / self.num_steps, 1 - (k + 1) / self.num_steps
            state = replace(self._back(denoiser, state, t, s, generator), step=k + 1)
            yield state

    def _back(
        self, denoiser: Mixed, state: State, t: float, s: float, generator: Randomness
    ) -> State:
        """Draw hidden tokens, reveal some of them, and advance the states of the others."""
        z = noisy(state)
        shape, device = state.tokens.shape, state.tokens.device
        luck = uniform(shape, generator=generator, dtype=torch.float64, device=device)
        u = uniform(shape, generator=generator, dtype=torch.float64, device=device)
        hidden = state.masked
        logits, state = ask_mixed(denoiser, state, t)
        guessed = state.commit(hidden, *self.draw(logits, u[hidden]))
        kept = hidden & (luck >= (t - s) / t)
        gamma_t, gamma_s = denoiser.snr_at(torch.tensor([t, s], dtype=torch.float64)).tolist()
        x = denoiser.codebook.detach().double()[guessed.tokens]
        z = advance(z, x, (gamma_s - gamma_t) * kept.double(), generator=generator)
        z = z * kept.unsqueeze(-1)  # revealed tokens have no state
        reached = guessed.remask(kept)
        if s == 0:
            return replace(reached, z=None, snr=None)
        return replace(reached, z=z, snr=z.new_full(shape, gamma_s))


def noised(denoiser: Mixed, state: State, generator: Randomness) -> State:
    """Start masked positions with noise of variance γ(1)."""
    d = denoiser.codebook.shape[1]
    shape, device = (*state.tokens.shape, d), state.tokens.device
    first = float(denoiser.snr_at(torch.ones((), dtype=torch.float64)))
    noise = normal(shape, generator=generator, dtype=torch.float64, device=device)
    z = first**0.5 * noise * state.masked.unsqueeze(-1)
    return replace(state, z=z, snr=z.new_full(state.tokens.shape, first))


def noisy(state: State) -> Noisy:
    """Return the states of the hidden tokens; other positions are 0."""
    assert state.z is not None, "z is set until the last step"
    return state.z


def ask_mixed(denoiser: Mixed, state: State, t: float) -> tuple[Float[Tensor, "n v"], State]:
    """Return logits of the hidden tokens, and count calls of sequences that have any."""
    asked = state.masked.any(dim=1)
    state = replace(state, nfe=state.nfe + asked.long())
    if not asked.any():
        return torch.zeros(0, denoiser.vocab_size, device=state.tokens.device), state
    tokens, z = state.tokens[asked], noisy(state)[asked].to(denoiser.codebook.dtype)
    with torch.no_grad():
        times = z.new_full((len(z),), t)
        return denoiser.at_mixture(Endpoints(tokens, z), times)[state.masked[asked]], state
