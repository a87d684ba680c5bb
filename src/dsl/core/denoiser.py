"""The core interface: a denoiser maps states to clean-token logits, without a time input.

The protocols below define which calls each kind of network supports. A sampler names the protocol
it needs (`Sampler.asks`); a family names the one its networks implement (`Family.protocol`). A
derived protocol supports all calls of its base.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeGuard, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dsl.core.channel import endpoint
from dsl.core.types import MASK, Codebook, Logits, Mask, Noisy, Rows, Tokens


@dataclass(frozen=True)
class Endpoints:
    """A state whose tokens are all at an end of their SNR path: 0, or γ_max x_v without noise.

    It stores b x l integers instead of b x l x d floats, and a denoiser may use a lookup table
    for it.
    """

    tokens: Tokens
    """MASK (-1) where γ = 0."""
    e: Noisy | None = None
    """Evidence added to the endpoint state, if any."""

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
    """The attributes that every network has."""

    @property
    def vocab_size(self) -> int:
        """The number of real tokens, without [MASK]."""
        ...

    @property
    def device(self) -> torch.device:
        """The device that input states must be on."""
        ...


@runtime_checkable
class Prefixed(Network, Protocol):
    """A network that predicts the first masked token after known ones: autoregressive models."""

    def __call__(self, z: Endpoints, /, *, at: Mask | None = None) -> Rows:
        """Return the logits of the token that follows the known prefix."""
        ...


@runtime_checkable
class Denoiser(Prefixed, Protocol):
    """A network that predicts every token of a state; masked states are always supported.

    No time, no noise level, no mask id: under the localization channel on the unit sphere the
    posterior depends on the realised state alone (equation 3).
    """

    def __call__(self, z: Noisy | Endpoints, /, *, at: Mask | None = None) -> Rows:
        """Return clean-token logits: (b, l, v), or the (n, v) rows that `at` chooses.

        Sequences without a chosen row may be skipped.
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
    """A network with an SNR input: the baseline that the paper compares with."""

    @property
    def codebook(self) -> Codebook:
        """The unit-norm embeddings x_v of the tokens."""
        ...

    @property
    def snr_range(self) -> tuple[float, float]:
        """The lowest and the highest SNR the network was trained for."""
        ...

    def at_snr(self, z: Noisy, snr: Float[Tensor, "b"]) -> Logits:
        """Return clean-token logits of states at the given SNR, one for each sequence."""
        ...


@runtime_checkable
class SelfConditioned(Clocked, Protocol):
    """A network with an SNR input and optional self-conditioning."""

    @property
    def self_conditioned(self) -> bool:
        """Whether self-conditioning is enabled."""
        ...

    def at_snr(self, z: Noisy, snr: Float[Tensor, "b"], previous: Noisy | None = None) -> Logits:
        """Return clean-token logits given an earlier x̂; None and zero both mean no estimate."""
        ...


@runtime_checkable
class Rated(Denoiser, Protocol):
    """A denoiser with a second output: how good each visible token is."""

    def quality(self, z: Endpoints) -> Float[Tensor, "b l"]:
        """Return the probability that each token is right."""
        ...


@runtime_checkable
class RatedAtOnce(Rated, Protocol):
    """A rated denoiser that returns logits and token quality from one forward pass."""

    def rated(self, z: Endpoints, *, at: Mask) -> tuple[Rows, Float[Tensor, "b l"]]:
        """Return the logits that `at` chooses, and the quality of every token of every sequence."""
        ...


def require_rated(network: object) -> Rated:
    """Raise an error if the network does not rate tokens."""
    if not isinstance(network, Rated):
        raise ValueError(
            "expected a network that rates its tokens, such as prism, "
            f"got a {type(network).__name__}"
        )
    return network


def require_clocked(network: object) -> Clocked:
    """Raise an error if the network has no SNR input."""
    if not isinstance(network, Clocked):
        raise ValueError(
            f"expected a network with an SNR input, such as vp, got a {type(network).__name__}"
        )
    return network


def listens(network: Clocked) -> TypeGuard[SelfConditioned]:
    """Return whether a network uses self-conditioning."""
    return isinstance(network, SelfConditioned) and network.self_conditioned


def recalled(network: Clocked, z: Noisy, snr: Float[Tensor, "b"], previous: Noisy | None) -> Logits:
    """Predict at an SNR, with the previous x̂ if the network is self-conditioned."""
    if previous is None or not listens(network):
        return network.at_snr(z, snr)
    return network.at_snr(z, snr, previous)


def settled(network: Clocked, z: Noisy, snr: Float[Tensor, "b"]) -> Logits:
    """Predict at an SNR; a self-conditioned network runs twice, the second time with its first x̂.

    The second output is still a function of z and γ alone, so a bound computed from it is valid
    for the model that runs twice in every step.
    """
    logits = network.at_snr(z, snr)
    if not listens(network):
        return logits
    codebook = network.codebook.detach()
    return network.at_snr(z, snr, posterior_mean(logits.to(codebook.dtype), codebook).to(z.dtype))


def materialise(z: Noisy | Endpoints, denoiser: Continuous) -> Noisy:
    """Return the state in embedding space; endpoints are converted."""
    return z.z(denoiser.codebook, denoiser.snr_max) if isinstance(z, Endpoints) else z


def wanted(
    z: Noisy | Endpoints, at: Mask | None
) -> tuple[Float[Tensor, "n l d"] | Endpoints, Bool[Tensor, "n l"] | None]:
    """Drop sequences without requested rows; order is preserved."""
    if at is None or (live := at.any(dim=1)).all():
        return z, at
    return z[live], at[live]


def require_tokens(tokens: Int[Tensor, "*shape"], vocab_size: int, *, least: int = 0) -> None:
    """Raise an error for token ids outside the vocabulary."""
    if tokens.numel() and not (least <= int(tokens.min()) and int(tokens.max()) < vocab_size):
        raise ValueError(
            f"token ids must lie in {least} … {vocab_size - 1}, "
            f"got {int(tokens.min())} … {int(tokens.max())}"
        )


def require_logits(logits: Tensor) -> None:
    """Raise an error for NaN logits: all later numbers would be NaN as well."""
    if logits.isnan().any():
        raise ValueError("the denoiser returned NaN logits")


def at_once(network: Network, length: int) -> int:
    """Return the number of sequences per call: about 2^26 logits, at most 256 sequences."""
    return min(256, max(1, 2**26 // (length * network.vocab_size)))


def posterior_mean(logits: Rows, codebook: Codebook) -> Float[Tensor, "*rows d"]:
    """Average the embeddings under the token posterior: x̂ = Σ_v p(v | z) x_v (equation 9)."""
    return torch.softmax(logits, dim=-1) @ codebook
