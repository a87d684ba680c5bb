"""Wrappers: denoisers that change the input or output of another denoiser."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from dsl.core.denoiser import Continuous, Denoiser
from dsl.core.types import Codebook


@dataclass(frozen=True, eq=False)
class Wrapper:
    """A denoiser of masked states around another one, with its attributes passed through."""

    denoiser: Denoiser

    @property
    def vocab_size(self) -> int:
        """The number of real tokens."""
        return self.denoiser.vocab_size

    @property
    def device(self) -> torch.device:
        """The device that input states must be on."""
        return self.denoiser.device

    @property
    def calls(self) -> int:
        """Network calls per denoiser call."""
        return calls(self.denoiser)

    def stretch(self, begin: int, end: int) -> Wrapper:
        """Return the wrapper for states of positions `begin` to `end` (exclusive)."""
        return replace(self, denoiser=stretch(self.denoiser, begin, end))


@dataclass(frozen=True, eq=False)
class ContinuousWrapper(Wrapper):
    """A wrapper around a denoiser with continuous states."""

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
    """Return the network calls per denoiser call: 1, unless a wrapper needs more."""
    return denoiser.calls if isinstance(denoiser, Wrapper) else 1


def stretch(denoiser: Any, begin: int, end: int) -> Any:
    """Restrict wrappers to a stretch of the text; networks have no absolute positions."""
    return denoiser.stretch(begin, end) if isinstance(denoiser, Wrapper) else denoiser


def innermost(denoiser: object) -> object:
    """Return the network inside all wrappers."""
    return innermost(denoiser.denoiser) if isinstance(denoiser, Wrapper) else denoiser
