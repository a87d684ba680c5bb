"""What continuous paths share: a posterior mean for the free positions, pinned states elsewhere."""

from __future__ import annotations

from dataclasses import replace

import torch

from dsl.channel import endpoint
from dsl.denoiser import Continuous, posterior_mean
from dsl.sampling.sampler import ask
from dsl.sampling.state import State
from dsl.types import SNR, Noisy


def pinned(denoiser: Continuous, state: State, z: Noisy) -> Noisy:
    """Hold the fixed positions at their endpoint γ_max x, whatever the path does to the others."""
    codebook = denoiser.codebook.detach()  # a walk must not drag a graph behind it
    x = codebook[state.tokens.clamp(min=0)]
    level = torch.full(state.tokens.shape, denoiser.snr_max, dtype=codebook.dtype, device=z.device)
    return torch.where(state.fixed.unsqueeze(-1), endpoint(x, level), z.to(codebook.dtype))


def denoise(denoiser: Continuous, state: State, z: Noisy) -> tuple[Noisy, State]:
    """Return x̂(z) at every position, counting one denoiser call for each sequence."""
    at = torch.ones_like(state.fixed)
    logits, state = ask(denoiser, state, pinned(denoiser, state, z), at)
    x_hat = posterior_mean(logits.double(), denoiser.codebook.detach().double())
    return x_hat.reshape(z.shape), state


def walked(denoiser: Continuous, state: State, z: Noisy, snr: SNR) -> State:
    """Return the state after a continuous step."""
    return replace(state, z=pinned(denoiser, state, z), snr=snr, step=state.step + 1)
