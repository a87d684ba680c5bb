"""Text that goes on: a denoiser is asked about the beginning of a longer, unknown sequence."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dsl.around import Around, AroundContinuous
from dsl.denoiser import Continuous, Denoiser, Endpoints, Question, Rated, RatedAtOnce
from dsl.types import MASK, Mask, Noisy, Rows

FOLLOWED: frozenset[Question] = frozenset({"prefix", "endpoints", "states", "quality"})
"""What a denoiser can still be asked when unknown tokens follow: what is noise at the end of a text
has to be drawn with it."""


def followed(denoiser: Denoiser, unseen: int) -> Denoiser:
    """Let so many unknown tokens follow every state; γ = 0 is what nobody knows anything of."""
    if not unseen:
        return denoiser
    kinds = (Continuous, FollowedContinuous), (RatedAtOnce, FollowedAtOnce), (Rated, FollowedRated)
    kind = next((kind for asked, kind in kinds if isinstance(denoiser, asked)), Followed)
    return kind(denoiser, unseen)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Followed(Around):
    """A denoiser of sequences whose last tokens are masked for ever, and never asked for."""

    unseen: int

    def __call__(self, z: Noisy | Endpoints, /, *, at: Mask | None = None) -> Rows:
        """Ask about the longer state, and return the rows of the beginning."""
        shape = z.tokens.shape if isinstance(z, Endpoints) else z.shape[:2]
        asked = torch.ones(shape, dtype=torch.bool, device=self.device) if at is None else at
        rows = self.denoiser(self._longer(z), at=nn.functional.pad(asked, (0, self.unseen)))
        return rows if at is not None else rows.unflatten(0, shape)

    def stretch(self, begin: int, end: int) -> Around:
        """Refuse: what follows a text does not follow its parts."""
        raise ValueError("a text with unknown tokens after it cannot be written part by part")

    def _longer(self, z: Noisy | Endpoints) -> Float[Tensor, "b m d"] | Endpoints:
        if not isinstance(z, Endpoints):
            return self._zeros(z)
        tokens = nn.functional.pad(z.tokens, (0, self.unseen), value=MASK)
        return Endpoints(tokens, None if z.e is None else self._zeros(z.e))

    def _zeros(self, state: Noisy) -> Float[Tensor, "b m d"]:
        return nn.functional.pad(state, (0, 0, 0, self.unseen))


@dataclass(frozen=True, eq=False)
class FollowedContinuous(Followed, AroundContinuous):
    """The same of a denoiser with continuous states."""


@dataclass(frozen=True, eq=False)
class FollowedRated(Followed):
    """The same of a denoiser that rates its tokens."""

    denoiser: Rated

    def quality(self, z: Endpoints) -> Float[Tensor, "b l"]:
        """Return the probability that each token of the beginning is right."""
        longer = self._longer(z)
        assert isinstance(longer, Endpoints)
        return self.denoiser.quality(longer)[:, : z.tokens.shape[1]]


@dataclass(frozen=True, eq=False)
class FollowedAtOnce(FollowedRated):
    """The same of a denoiser of which one forward tells both."""

    denoiser: RatedAtOnce

    def rated(self, z: Endpoints, *, at: Mask) -> tuple[Rows, Float[Tensor, "b l"]]:
        """Return logits and quality of the beginning."""
        longer = self._longer(z)
        assert isinstance(longer, Endpoints)
        rows, quality = self.denoiser.rated(longer, at=nn.functional.pad(at, (0, self.unseen)))
        return rows, quality[:, : at.shape[1]]
