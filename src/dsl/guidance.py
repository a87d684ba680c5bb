"""Guidance: what is given counts more than once (classifier-free, by hiding what is given).

A denoiser that is asked with the evidence y and without it knows what y says of every token:
ℓ(v) = log p(v | z, y) - log p(v | z) = log p(y | v, z) + const, a likelihood that depends on the
state. Counted w times, p(v | z) e^{w ℓ(v)} is the posterior of having seen y w times. With w = 1 it
is plain conditioning; more makes texts fit what is given better and differ less.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from dsl.around import Around, AroundContinuous, calls, stretch
from dsl.denoiser import Continuous, Denoiser, Endpoints, Question
from dsl.evidence import Evidence, given
from dsl.types import MASK, Mask, Noisy, Rows

GUIDED: frozenset[Question] = frozenset({"prefix", "endpoints", "states"})
"""What a guided denoiser can still be asked."""


@dataclass(frozen=True, eq=False)
class Guided(Around):
    """A denoiser that is given something, beside the same one that is not."""

    blind: Denoiser
    """The denoiser that is given nothing."""
    hidden: Mask
    """The positions it is not shown: those of the tokens that are given."""
    weight: float

    @property
    def calls(self) -> int:
        """Both are called."""
        return calls(self.denoiser) + calls(self.blind)

    def __call__(self, z: Noisy | Endpoints, /, *, at: Mask | None = None) -> Rows:
        """Ask both, and count the difference w times."""
        told = self.denoiser(z, at=at).double().log_softmax(dim=-1)
        free = self.blind(self._forgotten(z), at=at).double().log_softmax(dim=-1)
        known = torch.isfinite(free)  # elsewhere the evidence has nothing to compare with
        return torch.where(known & torch.isfinite(told), free + self.weight * (told - free), told)

    def stretch(self, begin: int, end: int) -> Around:
        """Ask about some positions only."""
        return replace(
            self,
            denoiser=stretch(self.denoiser, begin, end),
            blind=stretch(self.blind, begin, end),
            hidden=self.hidden[:, begin:end],
        )

    def _forgotten(self, z: Noisy | Endpoints) -> Noisy | Endpoints:
        if isinstance(z, Endpoints):
            return Endpoints(z.tokens.masked_fill(self.hidden, MASK), z.e)
        return z.masked_fill(self.hidden.unsqueeze(-1), 0.0)


@dataclass(frozen=True, eq=False)
class GuidedContinuous(Guided, AroundContinuous):
    """The same of a denoiser with continuous states."""


def guided(denoiser: Denoiser, evidence: Evidence, weight: float) -> Denoiser:
    """Condition a denoiser on evidence that counts `weight` times."""
    told = given(denoiser, evidence)
    if weight == 1:
        return told
    hidden = evidence.pinned != MASK
    kind = GuidedContinuous if isinstance(denoiser, Continuous) else Guided
    return kind(told, denoiser, hidden, weight)
