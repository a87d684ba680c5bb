"""The unconditional SDE itself: dz = x̂(z) dγ + √dγ dW along any SNR path (equation 5)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from dsl.denoiser import Continuous, Question
from dsl.path import Shared, SNRPath
from dsl.sampling.ancestral import require_steps
from dsl.sampling.continuous import denoise, walked
from dsl.sampling.sampler import STATES
from dsl.sampling.state import State
from dsl.streams import Randomness, normal


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
    needs: ClassVar[frozenset[Question]] = STATES

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
            z = state.z.double()  # what is yielded is what the walk goes on from
            yield state
