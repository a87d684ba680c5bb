"""Protocols of the zoo's networks, beyond the library's `Denoiser`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.apps.zoo.kernel import Kernel
from dsl.core import Codebook, Endpoints, Logits, Mask, Network, Schedule, Streams, Tokens


class _Process(Network, Protocol):
    """A network that reverses a discrete process."""

    @property
    def kernel(self) -> Kernel:
        """The transition kernel of the process."""
        ...

    @property
    def alpha(self) -> Schedule:
        """The schedule: the share of tokens still clean at a time."""
        ...


@runtime_checkable
class Timed(_Process, Protocol):
    """A network over tokens with a time input: discrete and uniform-state diffusion."""

    def at_time(self, tokens: Tokens, t: Float[Tensor, "b"]) -> Logits:
        """Return logits of x̂_0 at every position, at the given time of each sequence.

        x̂_0 is the input of the kernel's posterior: the clean token given all *other* positions.
        The kernel adds the evidence of the position's own noisy token.
        """
        ...


@runtime_checkable
class Replaced(Timed, Protocol):
    """A timed network for uniform noise: any input token may be wrong."""


@runtime_checkable
class Scored(_Process, Protocol):
    """A network of score ratios: how much likelier each text with one other token is."""

    def log_score(self, tokens: Tokens, t: Float[Tensor, "b"]) -> Logits:
        """Return log q_t(x with v at position i) / q_t(x) for every position and real token v."""
        ...


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
class AtTime:
    """Tokens corrupted by the network's own process up to time t."""

    t: float

    @property
    def label(self) -> str:
        """The time."""
        return f"t={self.t:g}"

    def ask(
        self, network: Any, tokens: Tokens, *, generator: Streams
    ) -> tuple[Float[Tensor, "n v"], Mask]:
        """Corrupt the text and predict each token from all the others."""
        times = torch.full((len(tokens),), self.t, device=tokens.device)
        noisy = network.kernel.corrupt(tokens, network.alpha(times), generator=generator)
        at = network.kernel.doubtful(noisy)
        return network.at_time(noisy, times)[at], at
