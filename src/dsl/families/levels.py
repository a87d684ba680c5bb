"""Teacher forcing: corrupt known text to a level, and run a network on it.

A level defines the input of the network: some of the tokens for a masked network, those to the left
for an autoregressive one, noisy states of all tokens for a continuous one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.core.channel import observe
from dsl.core.denoiser import Endpoints, settled
from dsl.core.snr import reveal_set
from dsl.core.streams import Streams
from dsl.core.types import MASK, Mask, Tokens
from dsl.data.document_ends import Ends, padding

LADDER = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 50.0, 80.0, 100.0)
"""SNRs from almost masked to almost clean. Refinement decides at 50 and above."""


@runtime_checkable
class Level(Protocol):
    """A corruption level of a text."""

    @property
    def label(self) -> str | float:
        """What tables call the level: a name, or its SNR."""
        ...

    def ask(
        self, network: Any, tokens: Tokens, *, generator: Streams
    ) -> tuple[Float[Tensor, "n v"], Mask]:
        """Corrupt the text; return the logits of some positions, and their mask."""
        ...


@dataclass(frozen=True)
class Masked:
    """Mask a random number of positions and predict them, as in ROAR."""

    label: ClassVar[str] = "masked"

    def ask(
        self, network: Any, tokens: Tokens, *, generator: Streams
    ) -> tuple[Float[Tensor, "n v"], Mask]:
        """Mask a random set of random size, and predict it."""
        b, length = tokens.shape
        at = ~reveal_set((b, length), generator=generator, device=tokens.device)
        return network(Endpoints(tokens.masked_fill(at, MASK)), at=at), at


@dataclass(frozen=True)
class Prefix:
    """Predict each token from those before it."""

    label: ClassVar[str] = "prefix"

    def ask(
        self, network: Any, tokens: Tokens, *, generator: Streams
    ) -> tuple[Float[Tensor, "n v"], Mask]:
        """Predict every position in one call."""
        at = torch.ones_like(tokens, dtype=torch.bool)
        return network.teacher_forced(tokens)[at], at


@dataclass(frozen=True)
class AtSNR:
    """Observe every position at one SNR; the network has no SNR input."""

    snr: float

    @property
    def label(self) -> float:
        """The SNR."""
        return self.snr

    def ask(
        self, network: Any, tokens: Tokens, *, generator: Streams
    ) -> tuple[Float[Tensor, "n v"], Mask]:
        """Observe the whole text and predict every position."""
        at = torch.ones_like(tokens, dtype=torch.bool)
        return network(_observed(network.codebook, tokens, self.snr, generator))[at], at


@dataclass(frozen=True)
class AtClock(AtSNR):
    """Observe every position at one SNR, for networks with an SNR input."""

    def ask(
        self, network: Any, tokens: Tokens, *, generator: Streams
    ) -> tuple[Float[Tensor, "n v"], Mask]:
        """Observe the whole text and predict every position at its SNR."""
        z = _observed(network.codebook, tokens, self.snr, generator)
        at = torch.ones_like(tokens, dtype=torch.bool)
        return settled(network, z, z.new_full((len(z),), self.snr))[at], at


@dataclass(frozen=True)
class Unpadded:
    """A level that excludes padding from the predictions, but not from the input."""

    level: Level
    ends: Ends

    @property
    def label(self) -> str | float:
        """What the level is called."""
        return self.level.label

    def ask(
        self, network: Any, tokens: Tokens, *, generator: Streams
    ) -> tuple[Float[Tensor, "n v"], Mask]:
        """Predict, and keep the rows of documents and their ends."""
        logits, at = self.level.ask(network, tokens, generator=generator)
        kept = at & ~padding(tokens, self.ends)
        return logits[kept[at]], kept


def _observed(codebook: Tensor, tokens: Tokens, snr: float, generator: Streams) -> Tensor:
    x = codebook.detach()[tokens]
    level = torch.full(tokens.shape, snr, device=tokens.device, dtype=x.dtype)
    return observe(x, level, generator=generator)
