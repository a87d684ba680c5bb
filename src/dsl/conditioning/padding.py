"""Padding: append masked tokens, so that the text is the beginning of a longer sequence."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dsl.conditioning.wrapper import ContinuousWrapper, Wrapper
from dsl.core.denoiser import Continuous, Denoiser, Endpoints, Rated, RatedAtOnce
from dsl.core.types import MASK, Mask, Noisy, Rows


def padded(denoiser: Denoiser, unseen: int) -> Denoiser:
    """Append `unseen` masked tokens (γ = 0) to every state."""
    if not unseen:
        return denoiser
    kinds = (Continuous, PaddedContinuous), (RatedAtOnce, PaddedRatedAtOnce), (Rated, PaddedRated)
    kind = next((kind for asked, kind in kinds if isinstance(denoiser, asked)), Padded)
    return kind(denoiser, unseen)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Padded(Wrapper):
    """A denoiser of states with masked padding at the end."""

    unseen: int

    def __call__(self, z: Noisy | Endpoints, /, *, at: Mask | None = None) -> Rows:
        """Call the denoiser on the padded state, and return the rows without padding."""
        shape = z.tokens.shape if isinstance(z, Endpoints) else z.shape[:2]
        asked = torch.ones(shape, dtype=torch.bool, device=self.device) if at is None else at
        rows = self.denoiser(self._longer(z), at=nn.functional.pad(asked, (0, self.unseen)))
        return rows if at is not None else rows.unflatten(0, shape)

    def stretch(self, begin: int, end: int) -> Wrapper:
        """Raise an error: the padding follows the whole text, not its parts."""
        raise ValueError("a padded text cannot be generated window by window")

    def _longer(self, z: Noisy | Endpoints) -> Float[Tensor, "b m d"] | Endpoints:
        if not isinstance(z, Endpoints):
            return self._zeros(z)
        tokens = nn.functional.pad(z.tokens, (0, self.unseen), value=MASK)
        return Endpoints(tokens, None if z.e is None else self._zeros(z.e))

    def _zeros(self, state: Noisy) -> Float[Tensor, "b m d"]:
        return nn.functional.pad(state, (0, 0, 0, self.unseen))


@dataclass(frozen=True, eq=False)
class PaddedContinuous(Padded, ContinuousWrapper):
    """Padding for a denoiser with continuous states."""


@dataclass(frozen=True, eq=False)
class PaddedRated(Padded):
    """Padding for a denoiser that rates its tokens."""

    denoiser: Rated

    def quality(self, z: Endpoints) -> Float[Tensor, "b l"]:
        """Return the probability that each token is right, without padding."""
        longer = self._longer(z)
        assert isinstance(longer, Endpoints)
        return self.denoiser.quality(longer)[:, : z.tokens.shape[1]]


@dataclass(frozen=True, eq=False)
class PaddedRatedAtOnce(PaddedRated):
    """Padding for a denoiser that returns logits and quality from one forward pass."""

    denoiser: RatedAtOnce

    def rated(self, z: Endpoints, *, at: Mask) -> tuple[Rows, Float[Tensor, "b l"]]:
        """Return logits and quality, without padding."""
        longer = self._longer(z)
        assert isinstance(longer, Endpoints)
        rows, quality = self.denoiser.rated(longer, at=nn.functional.pad(at, (0, self.unseen)))
        return rows, quality[:, : at.shape[1]]
