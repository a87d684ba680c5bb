"""Teacher forcing: corrupt known text to a level, and ask a network about it.

A level says what a network is shown of the text. Each kind of network has its own: a masked one
some of the tokens, an autoregressive one those to the left, a continuous one all of them, noisily.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.channel import observe
from dsl.data.documents import Ends, padding
from dsl.denoiser import Endpoints, settled
from dsl.snr import reveal_set
from dsl.streams import Streams
from dsl.types import MASK, Mask, Tokens

LADDER = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 50.0, 80.0, 100.0)
"""SNRs from nearly nothing to nearly clean; 50 and above are where refinement decides."""


@runtime_checkable
class Level(Protocol):
    """How much of a text a network is shown."""

    @property
    def label(self) -> str | float:
        """What tables call the level: a name, or its SNR."""
        ...

    def ask(
        self, network: Any, tokens: Tokens, *, generator: Streams
    ) -> tuple[Float[Tensor, "n v"], Mask]:
        """Corrupt and ask: return the logits of some positions, and which these are."""
        ...


@dataclass(frozen=True)
class Masked:
    """Positions are masked in random numbers and asked about: ROAR's states."""

    label: ClassVar[str] = "masked"

    def ask(
        self, network: Any, tokens: Tokens, *, generator: Streams
    ) -> tuple[Float[Tensor, "n v"], Mask]:
        """Mask a random set of random size, and ask about it."""
        b, length = tokens.shape
        at = ~reveal_set((b, length), generator=generator, device=tokens.device)
        return network(Endpoints(tokens.masked_fill(at, MASK)), at=at), at


@dataclass(frozen=True)
class Prefix:
    """Each token is asked about given those before it."""

    label: ClassVar[str] = "prefix"

    def ask(
        self, network: Any, tokens: Tokens, *, generator: Streams
    ) -> tuple[Float[Tensor, "n v"], Mask]:
        """Ask about every position at once."""
        at = torch.ones_like(tokens, dtype=torch.bool)
        return network.teacher_forced(tokens)[at], at


@dataclass(frozen=True)
class AtSNR:
    """Every position is seen at one SNR, which the network is not told."""

    snr: float

    @property
    def label(self) -> float:
        """The SNR."""
        return self.snr

    def ask(
        self, network: Any, tokens: Tokens, *, generator: Streams
    ) -> tuple[Float[Tensor, "n v"], Mask]:
        """Observe the whole text and ask about every position."""
        at = torch.ones_like(tokens, dtype=torch.bool)
        return network(_observed(network.codebook, tokens, self.snr, generator))[at], at


@dataclass(frozen=True)
class AtClock(AtSNR):
    """Every position is seen at one SNR, and the network is told it; twice, if it listens."""

    def ask(
        self, network: Any, tokens: Tokens, *, generator: Streams
    ) -> tuple[Float[Tensor, "n v"], Mask]:
        """Observe the whole text, set the clock, and ask about every position."""
        z = _observed(network.codebook, tokens, self.snr, generator)
        at = torch.ones_like(tokens, dtype=torch.bool)
        return settled(network, z, z.new_full((len(z),), self.snr))[at], at


@dataclass(frozen=True)
class AtTime:
    """Tokens are corrupted as the network's own process does by a time, and it is told which."""

    t: float

    @property
    def label(self) -> str:
        """The time."""
        return f"t={self.t:g}"

    def ask(
        self, network: Any, tokens: Tokens, *, generator: Streams
    ) -> tuple[Float[Tensor, "n v"], Mask]:
        """Corrupt the text and ask what each token is, as all the others tell it."""
        times = torch.full((len(tokens),), self.t, device=tokens.device)
        noisy = network.kernel.corrupt(tokens, network.alpha(times), generator=generator)
        at = network.kernel.doubtful(noisy)
        return network.at_time(noisy, times)[at], at


@dataclass(frozen=True)
class Unpadded:
    """A level at which padding is shown like the rest of a block, but not asked about."""

    level: Level
    ends: Ends

    @property
    def label(self) -> str | float:
        """What the level is called."""
        return self.level.label

    def ask(
        self, network: Any, tokens: Tokens, *, generator: Streams
    ) -> tuple[Float[Tensor, "n v"], Mask]:
        """Ask, and keep the answers about documents and their ends."""
        logits, at = self.level.ask(network, tokens, generator=generator)
        kept = at & ~padding(tokens, self.ends)
        return logits[kept[at]], kept


def _observed(codebook: Tensor, tokens: Tokens, snr: float, generator: Streams) -> Tensor:
    x = codebook.detach()[tokens]
    level = torch.full(tokens.shape, snr, device=tokens.device, dtype=x.dtype)
    return observe(x, level, generator=generator)
