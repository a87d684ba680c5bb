"""Exact Bayes denoisers of small distributions: ground truth for samplers and likelihoods.

Each is a Denoiser, evaluates the log-probability of any sequence, draws exact samples, and can be
tilted by a likelihood vector at every position, P(x) → P(x) e^{Σ_i ℓ_i(x_i)} / Z.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dsl.core import sphere
from dsl.core.channel import require_finite
from dsl.core.denoiser import Continuous, Endpoints, materialise, require_tokens, wanted
from dsl.core.streams import Randomness, categorical, stream, uniform
from dsl.core.types import Codebook, Logits, Mask, Noisy, Rows, Tokens


@runtime_checkable
class Oracle(Continuous, Protocol):
    """A denoiser that is exact for a distribution it can also evaluate and draw from."""

    @property
    def length(self) -> int:
        """The number of tokens in every sequence."""
        ...

    def log_prob(self, tokens: Tokens) -> Float[Tensor, "b"]:
        """Return log P of each sequence, in nats."""
        ...

    def sample(self, n: int, *, generator: Randomness = None) -> Tokens:
        """Draw n sequences exactly."""
        ...

    def tilt(self, log_likelihood: Float[Tensor, "l v"]) -> Oracle:
        """Return the oracle of P(x) e^{Σ_i ℓ_i(x_i)} / Z."""
        ...


class _Exact:
    """The attributes that both oracles take from their codebook."""

    codebook: Codebook

    @property
    def vocab_size(self) -> int:
        """The number of tokens."""
        return len(self.codebook)

    @property
    def device(self) -> torch.device:
        """Where the tables are."""
        return self.codebook.device


@dataclass(frozen=True, eq=False)
class Enumerated(_Exact):
    """The exact denoiser of a weighted finite set of sequences."""

    sequences: Int[Tensor, "k l"]
    log_weights: Float[Tensor, "k"]
    """Log-probabilities up to a common constant."""
    codebook: Codebook
    snr_max: float = 100.0

    def __post_init__(self) -> None:
        require_tokens(self.sequences, len(self.codebook))

    @property
    def length(self) -> int:
        """The number of tokens in every sequence."""
        return int(self.sequences.shape[1])

    def __call__(self, z: Noisy | Endpoints, /, *, at: Mask | None = None) -> Rows:
        """Sum P(x) e^{⟨x, z⟩} over the sequences that carry token v at position i."""
        z, at = wanted(z, at)
        scores = self._scores(_field(z, self))  # (b, k)
        spread = scores.unsqueeze(-1).expand(-1, -1, self.length)
        index = self.sequences.expand_as(spread)
        # A logsumexp over each group of sequences, by scattering first the maxima, then the sums.
        shape = (scores.shape[0], self.codebook.shape[0], self.length)
        top = scores.new_full(shape, -torch.inf).scatter_reduce(1, index, spread, "amax")
        # Where a group has no mass at all, -inf - (-inf) is set to 0 rather than NaN.
        share = (spread - top.gather(1, index)).exp().nan_to_num(0.0)
        total = scores.new_zeros(shape).scatter_add(1, index, share)
        logits = (top + total.log()).transpose(1, 2)
        return logits if at is None else logits[at]

    def log_prob(self, tokens: Tokens) -> Float[Tensor, "b"]:
        """Return log P of each sequence; -inf outside the support."""
        match = (tokens.unsqueeze(1) == self.sequences).all(dim=-1)
        log_p = self.log_weights.log_softmax(0)
        return torch.where(match, log_p, -torch.inf).logsumexp(dim=1)

    def sample(self, n: int, *, generator: Randomness = None) -> Tokens:
        """Draw n sequences exactly."""
        p = self.log_weights.softmax(0).expand(n, -1)
        return self.sequences[_drawn(p, generator)]

    def tilt(self, log_likelihood: Float[Tensor, "l v"]) -> Enumerated:
        """Reweight every sequence by its likelihood."""
        return replace(self, log_weights=self._scores(log_likelihood.unsqueeze(0))[0])

    def _scores(self, field: Logits) -> Float[Tensor, "b k"]:
        position = torch.arange(self.length, device=self.sequences.device)
        return self.log_weights + field[:, position, self.sequences].sum(dim=-1)


@dataclass(frozen=True, eq=False)
class Markov(_Exact):
    """The exact denoiser of a first-order chain, by the forward-backward recursions."""

    log_initial: Float[Tensor, "v"]
    log_transition: Float[Tensor, "v v"]
    """Row: from; column: to."""
    codebook: Codebook
    length: int
    snr_max: float = 100.0
    log_unary: Float[Tensor, "l v"] | None = None
    """Position-wise factors that tilt the chain, if any."""

    def __call__(self, z: Noisy | Endpoints, /, *, at: Mask | None = None) -> Rows:
        """Combine the messages that reach each position from both sides with its own state."""
        z, at = wanted(z, at)
        field = _field(z, self)
        if field.shape[1] != self.length:
            raise ValueError(f"this chain has {self.length} tokens, the state has {field.shape[1]}")
        field = field if self.log_unary is None else field + self.log_unary
        forward, backward = self._forward(field), self._backward(field)
        logits = forward + field + backward
        return logits if at is None else logits[at]

    def log_prob(self, tokens: Tokens) -> Float[Tensor, "b"]:
        """Return log P of each sequence, in nats."""
        require_tokens(tokens, len(self.codebook))
        zero = self.log_initial.new_zeros(1, self.length, self.codebook.shape[0])
        field = zero if self.log_unary is None else zero + self.log_unary
        log_z = (self._forward(field) + field)[:, -1].logsumexp(dim=-1)
        unary = field[0, torch.arange(self.length, device=tokens.device), tokens].sum(dim=-1)
        steps = self.log_transition[tokens[:, :-1], tokens[:, 1:]].sum(dim=-1)
        return self.log_initial[tokens[:, 0]] + steps + unary - log_z

    def sample(self, n: int, *, generator: Randomness = None) -> Tokens:
        """Draw n sequences exactly: each token given the last, weighted by backward messages."""
        zero = self.log_initial.new_zeros(1, self.length, self.codebook.shape[0])
        field = zero if self.log_unary is None else zero + self.log_unary
        ahead = (field + self._backward(field))[0]
        row = self.log_initial.expand(n, -1)
        drawn = []
        for log_ahead in ahead:
            drawn.append(_drawn((row + log_ahead).softmax(dim=-1), generator))
            row = self.log_transition[drawn[-1]]
        return torch.stack(drawn, dim=1)

    def tilt(self, log_likelihood: Float[Tensor, "l v"]) -> Markov:
        """Multiply the likelihood into the position-wise factors."""
        unary = log_likelihood if self.log_unary is None else self.log_unary + log_likelihood
        return replace(self, log_unary=unary)

    def enumerated(self) -> Enumerated:
        """List all v^l sequences with their probabilities; for small chains only."""
        v = self.codebook.shape[0]
        grid = torch.cartesian_prod(*[torch.arange(v)] * self.length).reshape(-1, self.length)
        return Enumerated(grid, self.log_prob(grid), self.codebook, self.snr_max)

    def _forward(self, field: Logits) -> Logits:
        message = self.log_initial.expand(field.shape[0], -1)
        messages = [message]
        for own in field[:, :-1].unbind(dim=1):
            message = _log_matmul(message + own, self.log_transition)
            messages.append(message)
        return torch.stack(messages, dim=1)

    def _backward(self, field: Logits) -> Logits:
        message = torch.zeros_like(field[:, 0])
        messages = [message]
        for own in reversed(field[:, 1:].unbind(dim=1)):
            message = _log_matmul(message + own, self.log_transition.T)
            messages.append(message)
        return torch.stack(messages[::-1], dim=1)


def cyclic(size: int = 7, *, dtype: torch.dtype = torch.float64) -> Enumerated:
    """Build the paper's cyclic toy (D.1): all rotations of 0 … K-1, on the unit circle.

    Neighbours on a crowded circle need γ_max above 100: they should differ by at least 40 nats.
    """
    base = torch.arange(size)
    sequences = torch.stack([base.roll(i) for i in range(size)])
    codebook = sphere.circle(size, dtype=dtype)
    snr_max = max(100.0, 40.0 / float(1 - codebook[0] @ codebook[1]))
    return Enumerated(sequences, torch.zeros(size, dtype=dtype), codebook, snr_max)


def two_bit(*, dtype: torch.dtype = torch.float64) -> Enumerated:
    """Build the two-bit toy of A.8: 00 or 11, embedded as -1 and +1."""
    codebook = torch.tensor([[-1.0], [1.0]], dtype=dtype)
    return Enumerated(torch.tensor([[0, 0], [1, 1]]), torch.zeros(2, dtype=dtype), codebook)


def markov(
    size: int = 6,
    length: int = 8,
    *,
    seed: int = 0,
    sharpness: float = 1.5,
    dtype: torch.dtype = torch.float64,
) -> Markov:
    """Build a random chain: Gaussian logits of standard deviation `sharpness`, simplex codebook."""
    logits = torch.randn(size + 1, size, generator=stream(seed), dtype=dtype)
    table = (sharpness * logits).log_softmax(dim=-1)
    return Markov(table[0], table[1:], sphere.simplex(size, dtype=dtype), length)


def _field(z: Noisy | Endpoints, oracle: Continuous) -> Logits:
    state = materialise(z, oracle)
    require_finite(state)
    d = oracle.codebook.shape[1]
    if state.shape[-1] != d:
        raise ValueError(
            f"this oracle's states have {d} coordinates per token, got {state.shape[-1]}"
        )
    return state.to(oracle.codebook) @ oracle.codebook.T


def _log_matmul(log_a: Float[Tensor, "b v"], log_b: Float[Tensor, "v w"]) -> Float[Tensor, "b w"]:
    # One matrix product, scaled by the largest entry of each row so that large terms do not
    # underflow; a row without mass stays -inf.
    shift = log_a.amax(dim=-1, keepdim=True).clamp(min=torch.finfo(log_a.dtype).min)
    return ((log_a - shift).exp() @ log_b.exp()).log() + shift


def _drawn(p: Float[Tensor, "n k"], generator: Randomness) -> Int[Tensor, "n"]:
    u = uniform((len(p), 1), generator=generator, dtype=p.dtype, device=p.device)
    return categorical(p, u.squeeze(1))
