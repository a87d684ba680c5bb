"""Classifier-free guidance: evidence with a weight, by comparing with and without it.

Running a denoiser with the evidence y and without it gives the likelihood of y for every token:
ℓ(v) = log p(v | z, y) - log p(v | z) = log p(y | v, z) + const, which depends on the state. With
weight w, p(v | z) e^{w ℓ(v)} is the posterior of having seen y w times. w = 1 is plain
conditioning; larger w gives texts that fit the evidence better and are less diverse.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from dsl.conditioning.evidence import Evidence, given
from dsl.conditioning.wrapper import ContinuousWrapper, Wrapper, calls, stretch
from dsl.core.denoiser import Continuous, Denoiser, Endpoints
from dsl.core.types import MASK, Mask, Noisy, Rows


@dataclass(frozen=True, eq=False)
class Guided(Wrapper):
    """A conditioned denoiser combined with the unconditioned one."""

    blind: Denoiser
    """The unconditioned denoiser."""
    hidden: Mask
    """The positions that are masked for it: those of the pinned tokens."""
    weight: float

    @property
    def calls(self) -> int:
        """Network calls of both denoisers together."""
        return calls(self.denoiser) + calls(self.blind)

    def __call__(self, z: Noisy | Endpoints, /, *, at: Mask | None = None) -> Rows:
        """Call both denoisers and scale the difference of their log-probabilities by w."""
        seen = self.denoiser(z, at=at).double().log_softmax(dim=-1)
        free = self.blind(self._forgotten(z), at=at).double().log_softmax(dim=-1)
        known = torch.isfinite(free)  # elsewhere the difference is not defined
        return torch.where(known & torch.isfinite(seen), free + self.weight * (seen - free), seen)

    def stretch(self, begin: int, end: int) -> Wrapper:
        """Restrict to some positions."""
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
class GuidedContinuous(Guided, ContinuousWrapper):
    """Guidance for a denoiser with continuous states."""


def guided(denoiser: Denoiser, evidence: Evidence, weight: float) -> Denoiser:
    """Condition a denoiser on evidence with guidance weight `weight`."""
    seen = given(denoiser, evidence)
    if weight == 1:
        return seen
    hidden = evidence.pinned != MASK
    kind = GuidedContinuous if isinstance(denoiser, Continuous) else Guided
    return kind(seen, denoiser, hidden, weight)
