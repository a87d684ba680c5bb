"""The sampler of a network with a clock: the VP model that DSL is compared with (appendix B)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from dsl.channel import observe
from dsl.denoiser import Clocked, Question, listens, posterior_mean, recalled, require_clocked
from dsl.sampling.ancestral import require_steps
from dsl.sampling.categorical import Draw
from dsl.sampling.refine import resample
from dsl.sampling.sampler import CLOCK
from dsl.sampling.state import State
from dsl.streams import Randomness, normal
from dsl.types import Logits, Noisy


@dataclass(frozen=True)
class ClockedAncestral:
    """VDM's ancestral sampler: from noise at the first SNR to a draw of tokens at the last.

    In the coordinate z = γx + √γ ε its Gaussian steps are z + x̂ dγ + √dγ ε, those of the
    localization SDE; what differs is that the network is told γ. One that listens to itself is
    told x̂ of the step before.
    """

    num_steps: int
    power: float = 2.0
    """Step k is at γ_min + (γ_max - γ_min) (k/(T-1))^power."""
    draw: Draw = Draw()
    needs: ClassVar[frozenset[Question]] = CLOCK

    def __post_init__(self) -> None:
        require_steps(self.num_steps)
        if not 0.01 <= self.power <= 100:
            raise ValueError(f"power must lie in 0.01 … 100, got {self.power}")

    def steps(
        self, denoiser: Clocked, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Take T - 1 Gaussian steps and draw the tokens at the end: T forwards."""
        clocked = require_clocked(denoiser)
        low, high = clocked.snr_range
        grid = [
            low + (high - low) * (k / max(1, self.num_steps - 1)) ** self.power
            for k in range(self.num_steps)
        ]
        state = start
        for snr in grid[start.step :]:
            z = self._pinned(clocked, state, snr, generator)
            logits, x_hat, state = ask_at(clocked, state, z, snr)
            state = replace(state, step=state.step + 1)
            if state.step == self.num_steps:
                yield read_out(state, logits, self.draw, generator)
                return
            d_snr = grid[state.step] - snr
            level = torch.full_like(state.confidence, d_snr)
            z = z + observe(x_hat, level, generator=generator)
            reached = torch.full_like(state.confidence, grid[state.step])
            state = replace(state, z=z, snr=reached)
            yield state

    def _pinned(self, clocked: Clocked, state: State, snr: float, generator: Randomness) -> Noisy:
        """Return the state at this SNR, known tokens observed at it as training did.

        This "replacement" only approximates conditioning: a network with one clock for all
        positions cannot be told that one of them is certain. DSL can.
        """
        codebook = clocked.codebook.detach().double()
        x = codebook[state.tokens.clamp(min=0)]
        eps = normal(x.shape, generator=generator, dtype=x.dtype, device=x.device)
        known = snr * x + snr**0.5 * eps
        noise = (snr * (1 + snr)) ** 0.5 * eps  # of unit variance in VP's own coordinate
        z = noise if state.z is None else state.z.double()
        return torch.where(state.fixed.unsqueeze(-1), known, z)


def ask_at(clocked: Clocked, state: State, z: Noisy, snr: float) -> tuple[Logits, Noisy, State]:
    """Return logits and x̂ at an SNR, and the state that counts the call.

    What a network that listens is told next time is kept as the walk's memory.
    """
    with torch.no_grad():
        clock = z.new_full((len(z),), snr).float()
        logits = recalled(clocked, z.float(), clock, state.memory).double()
    if logits.isnan().any():
        raise ValueError("the denoiser returned NaN logits")
    x_hat = posterior_mean(logits, clocked.codebook.detach().double())
    asked = state.free.any(dim=1).long()
    memory = x_hat.float() if listens(clocked) else None
    return logits, x_hat, replace(state, nfe=state.nfe + asked, memory=memory)


def read_out(state: State, logits: Logits, draw: Draw, generator: Randomness) -> State:
    """Draw a token at every free position: the end of the walk."""
    done = replace(state, z=None, snr=None, memory=None)
    return resample(done, logits[state.free], draw, state.free, generator)
