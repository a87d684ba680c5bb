"""The centre of the library: a denoiser maps states to clean-token logits, and knows no time.

Not every network can be asked everything. `Question` names what a sampler may ask, a family says
what its networks answer, and the protocols below say how each question is put.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeGuard, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dsl.alpha import Schedule
from dsl.channel import endpoint
from dsl.kernel import Kernel
from dsl.types import MASK, Codebook, Logits, Mask, Noisy, Rows, Tokens

Question = Literal[
    "prefix", "endpoints", "states", "clock", "time", "replaced", "score", "quality", "mixed"
]
"""prefix: the token after known ones. endpoints: any masked token, given known ones. states: any
token, given continuous states. clock: the same, but the network must be told their SNR. time: any
token, given tokens at a stated time. replaced: the same, where any of them may be a wrong one.
score: how much likelier a text at a stated time would be with another token. quality: how good each
token of a text is. mixed: any masked token, given known ones and what noise has left of each masked
one at a stated time."""


@dataclass(frozen=True)
class Endpoints:
    """A state known to sit at the two ends of every SNR path: 0, or γ_max x_v without noise.

    It says in b x l integers what z says in b x l x d floats, and a denoiser may answer it from
    a table.
    """

    tokens: Tokens
    """MASK (-1) where γ = 0."""
    e: Noisy | None = None
    """Evidence added to the endpoint state; None is none."""

    def z(self, codebook: Codebook, snr_max: float) -> Noisy:
        """Materialise the state: γ_max x_v + e where revealed, e where masked."""
        require_tokens(self.tokens, len(codebook), least=MASK)
        revealed = self.tokens != MASK
        z = endpoint(codebook[self.tokens.clamp(min=0)], snr_max * revealed.to(codebook))
        return z if self.e is None else z + self.e

    def __getitem__(self, rows: Bool[Tensor, "b"]) -> Endpoints:
        """Keep these sequences of the batch."""
        return Endpoints(self.tokens[rows], None if self.e is None else self.e[rows])


@runtime_checkable
class Network(Protocol):
    """What every network has, whatever it can be asked."""

    @property
    def vocab_size(self) -> int:
        """The number of real tokens; [MASK] is none of them."""
        ...

    @property
    def device(self) -> torch.device:
        """Where states have to be."""
        ...


@runtime_checkable
class Denoiser(Network, Protocol):
    """A network that is asked about states: masks and tokens at least.

    No time, no noise level, no mask id: under the localization channel on the unit sphere the
    posterior depends on the realised state alone (equation 3).
    """

    def __call__(self, z: Noisy | Endpoints, /, *, at: Mask | None = None) -> Rows:
        """Return clean-token logits: (b, l, v), or the (n, v) rows that `at` chooses.

        A sequence of which `at` chooses no row need not be computed at all.
        """
        ...


@runtime_checkable
class Continuous(Denoiser, Protocol):
    """A denoiser with states between mask and token: DSL's network, and every exact oracle."""

    @property
    def codebook(self) -> Codebook:
        """The unit-norm embeddings x_v of the tokens."""
        ...

    @property
    def snr_max(self) -> float:
        """γ_max, the SNR at which a revealed token is realised."""
        ...


@runtime_checkable
class Clocked(Network, Protocol):
    """A network that must be told the SNR beside the state: what the paper is set against."""

    @property
    def codebook(self) -> Codebook:
        """The unit-norm embeddings x_v of the tokens."""
        ...

    @property
    def snr_range(self) -> tuple[float, float]:
        """The lowest and the highest SNR the network knows."""
        ...

    def at_snr(self, z: Noisy, snr: Float[Tensor, "b"]) -> Logits:
        """Return clean-token logits of states at the given SNR, one for each sequence."""
        ...


@runtime_checkable
class SelfConditioned(Clocked, Protocol):
    """A network with a clock that may also be told what it answered before."""

    @property
    def self_conditioned(self) -> bool:
        """Whether it listens."""
        ...

    def at_snr(self, z: Noisy, snr: Float[Tensor, "b"], previous: Noisy | None = None) -> Logits:
        """Return clean-token logits, told an earlier x̂; None is none, and so is zero."""
        ...


class _Process(Network, Protocol):
    """A network that undoes a discrete process, and says which one."""

    @property
    def kernel(self) -> Kernel:
        """What becomes of a token that is not left alone."""
        ...

    @property
    def alpha(self) -> Schedule:
        """How many are left alone at a time."""
        ...


@runtime_checkable
class Timed(_Process, Protocol):
    """A network over tokens that must be told the time: discrete and uniform-state diffusion."""

    def at_time(self, tokens: Tokens, t: Float[Tensor, "b"]) -> Logits:
        """Return logits of x̂_0 at every position, at the given time of each sequence.

        x̂_0 is what the kernel's posterior takes: the clean token as all *other* positions tell it.
        What a position's own noisy token tells of it, the kernel adds.
        """
        ...


@runtime_checkable
class Scored(_Process, Protocol):
    """A network of score ratios: how much likelier each text with one other token is."""

    def log_score(self, tokens: Tokens, t: Float[Tensor, "b"]) -> Logits:
        """Return log q_t(x with v at position i) / q_t(x) for every position and real token v."""
        ...


@runtime_checkable
class Rated(Denoiser, Protocol):
    """A denoiser with a second output: how good each visible token is."""

    def quality(self, z: Endpoints) -> Float[Tensor, "b l"]:
        """Return the probability that each token is right."""
        ...


@runtime_checkable
class RatedAtOnce(Rated, Protocol):
    """A rated denoiser of which one forward tells both."""

    def rated(self, z: Endpoints, *, at: Mask) -> tuple[Rows, Float[Tensor, "b l"]]:
        """Return the logits that `at` chooses, and the quality of every token of every sequence."""
        ...


def require_rated(network: object) -> Rated:
    """Refuse a network that rates no tokens."""
    if not isinstance(network, Rated):
        raise ValueError(
            "only networks that rate their tokens can be asked how good one is; "
            f"a {type(network).__name__} does not rate them"
        )
    return network


@runtime_checkable
class Mixed(Network, Protocol):
    """A network that is shown some tokens clean and the others through noise, and told the time.

    At time t a token is hidden with probability t, and what is hidden has the SNR γ(t).
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


def require_clocked(network: object) -> Clocked:
    """Refuse a network that has no clock."""
    if not isinstance(network, Clocked):
        raise ValueError(
            f"only networks with a clock are asked at an SNR; a {type(network).__name__} has none"
        )
    return network


def listens(network: Clocked) -> TypeGuard[SelfConditioned]:
    """Say whether a network is better told its last answer."""
    return isinstance(network, SelfConditioned) and network.self_conditioned


def recalled(network: Clocked, z: Noisy, snr: Float[Tensor, "b"], previous: Noisy | None) -> Logits:
    """Ask at an SNR, and tell the last x̂ to a network that listens."""
    if previous is None or not listens(network):
        return network.at_snr(z, snr)
    return network.at_snr(z, snr, previous)


def settled(network: Clocked, z: Noisy, snr: Float[Tensor, "b"]) -> Logits:
    """Ask at an SNR; a network that listens is asked twice, and told its first answer.

    The second answer is a function of z and γ as any other, so a bound made of it is a bound: of
    the model that asks twice in every step.
    """
    logits = network.at_snr(z, snr)
    if not listens(network):
        return logits
    codebook = network.codebook.detach()
    return network.at_snr(z, snr, posterior_mean(logits.to(codebook.dtype), codebook).to(z.dtype))


def materialise(z: Noisy | Endpoints, denoiser: Continuous) -> Noisy:
    """Return the state in embedding space, whichever way it was given."""
    return z.z(denoiser.codebook, denoiser.snr_max) if isinstance(z, Endpoints) else z


def wanted(
    z: Noisy | Endpoints, at: Mask | None
) -> tuple[Float[Tensor, "n l d"] | Endpoints, Bool[Tensor, "n l"] | None]:
    """Drop the sequences of which no row is asked for; the rows that are keep their order."""
    if at is None or (live := at.any(dim=1)).all():
        return z, at
    return z[live], at[live]


def require_tokens(tokens: Int[Tensor, "*shape"], vocab_size: int, *, least: int = 0) -> None:
    """Refuse token ids outside the vocabulary."""
    if tokens.numel() and not (least <= int(tokens.min()) and int(tokens.max()) < vocab_size):
        raise ValueError(
            f"token ids must lie in {least} … {vocab_size - 1}, "
            f"got {int(tokens.min())} … {int(tokens.max())}"
        )


def at_once(network: Network, length: int) -> int:
    """Return how many sequences may be asked about in one call: some 2^26 logits, at most 256."""
    return min(256, max(1, 2**26 // (length * network.vocab_size)))


def posterior_mean(logits: Rows, codebook: Codebook) -> Float[Tensor, "*rows d"]:
    """Average the embeddings under the token posterior: x̂ = Σ_v p(v | z) x_v (equation 9)."""
    return torch.softmax(logits, dim=-1) @ codebook
