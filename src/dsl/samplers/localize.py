"""The unconditional SDE itself: dz = x̂(z) dγ + √dγ dW along any SNR path (equation 5)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from dsl.core.channel import endpoint
from dsl.core.denoiser import Continuous, posterior_mean
from dsl.core.path import Shared, SNRPath
from dsl.core.streams import Randomness, normal
from dsl.core.types import SNR, Noisy
from dsl.samplers.base import Chain, Sampler, ask
from dsl.samplers.draw import Draw
from dsl.samplers.masked import require_steps
from dsl.samplers.refine import Commit
from dsl.samplers.state import State


def pinned(denoiser: Continuous, state: State, z: Noisy) -> Noisy:
    """Hold the fixed positions at their endpoint γ_max x, whatever the path does to the others."""
    codebook = denoiser.codebook.detach()  # no autograd graph across steps
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


@dataclass(frozen=True)
class Localize:
    """Euler-Maruyama in z; the path's own SNR increments are used, so only x̂ is approximated."""

    num_steps: int
    snr_max: float = 40.0
    """Where the default path ends."""
    power: float = 2.0
    """The default path is γ = snr_max t^power: small steps where the decisions are made."""
    noise: float = 1.0
    """Scale of the noise: 1 draws from the model, less is greedier."""
    path: SNRPath | None = None
    """Any other contour; it overrides snr_max and power."""
    asks: ClassVar[type] = Continuous

    def __post_init__(self) -> None:
        require_steps(self.num_steps)
        if not self.noise >= 0:
            raise ValueError(f"noise must be >= 0, got {self.noise}")
        if not (0 < self.snr_max <= 1e6 and 1 <= self.power <= 100 and self.noise <= 1000):
            raise ValueError(
                "localization needs 0 < snr_max <= 1e6, 1 <= power <= 100 and noise <= 1000, "
                f"got {self.snr_max}, {self.power} and {self.noise}"
            )

    def steps(
        self, denoiser: Continuous, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Walk from z = 0 to the end of the path."""
        b, length = start.tokens.shape
        device = start.tokens.device
        path = self.path or Shared(length, self.snr_max, self.power)
        grid = torch.linspace(0, 1, self.num_steps + 1, dtype=torch.float64, device=device)
        z = denoiser.codebook.detach().new_zeros(b, length, denoiser.codebook.shape[1]).double()
        state, z = start, z if start.z is None else start.z.double()
        for t, s in zip(grid[start.step : -1], grid[start.step + 1 :], strict=True):
            snr = path(s.expand(b))[0]
            d_snr = (snr - path(t.expand(b))[0]).unsqueeze(-1)
            x_hat, state = denoise(denoiser, state, z)
            eps = normal(z.shape, generator=generator, dtype=z.dtype, device=device)
            z = z + x_hat * d_snr + self.noise * d_snr.sqrt() * eps
            state = walked(denoiser, state, z, snr)
            assert state.z is not None
            z = state.z.double()  # continue from exactly the yielded state
            yield state


def localize(
    num_steps: int,
    *,
    snr_max: float = 40.0,
    power: float = 2.0,
    noise: float = 1.0,
    draw: Draw = Draw(),
) -> Sampler:
    """Euler-Maruyama on the unconditional SDE, then one read-out."""
    return Chain((Localize(num_steps, snr_max, power, noise), Commit(draw)))
