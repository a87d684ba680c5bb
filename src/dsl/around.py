"""Denoisers around others: they change the question or the answer, and are asked like any other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from dsl.denoiser import Continuous, Denoiser
from dsl.types import Codebook


@dataclass(frozen=True, eq=False)
class Around:
    """What a denoiser of masks and tokens passes on from the one inside it."""

    denoiser: Denoiser

    @property
    def vocab_size(self) -> int:
        """The number of real tokens."""
        return self.denoiser.vocab_size

    @property
    def device(self) -> torch.device:
        """Where states have to be."""
        return self.denoiser.device

    @property
    def calls(self) -> int:
        """How often a network is called for one answer."""
        return calls(self.denoiser)

    def stretch(self, begin: int, end: int) -> Around:
        """Return the same for states that hold the positions from `begin` to before `end`."""
        return replace(self, denoiser=stretch(self.denoiser, begin, end))


@dataclass(frozen=True, eq=False)
class AroundContinuous(Around):
    """The same of a denoiser with continuous states."""

    denoiser: Continuous

    @property
    def codebook(self) -> Codebook:
        """The unit-norm embeddings of the tokens."""
        return self.denoiser.codebook

    @property
    def snr_max(self) -> float:
        """γ_max, the SNR of a revealed token."""
        return self.denoiser.snr_max


def calls(denoiser: object) -> int:
    """Return how many calls of a network one answer costs: one, unless a denoiser says more."""
    return denoiser.calls if isinstance(denoiser, Around) else 1


def stretch(denoiser: Any, begin: int, end: int) -> Any:
    """Return what a stretch of a text is asked of; a network knows no absolute positions."""
    return denoiser.stretch(begin, end) if isinstance(denoiser, Around) else denoiser


def innermost(denoiser: object) -> object:
    """Return the network that a denoiser was put around, or itself."""
    return innermost(denoiser.denoiser) if isinstance(denoiser, Around) else denoiser
