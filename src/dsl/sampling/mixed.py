"""CANDI's sampler: hidden tokens move through the noise, and are revealed one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.channel import advance
from dsl.denoiser import Endpoints, Mixed, Question
from dsl.sampling.ancestral import require_steps
from dsl.sampling.categorical import Draw
from dsl.sampling.sampler import MIXED
from dsl.sampling.state import State
from dsl.streams import Randomness, normal, uniform
from dsl.types import Noisy


@dataclass(frozen=True)
class MixedAncestral:
    """T equal steps of time from noise to tokens, through q(x_s, z_s | x_t, z_t, x̂_0).

    In a step from t to s every hidden token is guessed. A share (t - s)/t of the guesses is
    revealed; each of the others draws its state on, exactly as the channel would if it were right:
    z + x dγ + √dγ ε. A single token is thus drawn exactly in any number of steps.
    """

    num_steps: int
    draw: Draw = Draw()
    needs: ClassVar[frozenset[Question]] = MIXED

    def __post_init__(self) -> None:
        require_steps(self.num_steps)

    def steps(
        self, denoiser: Mixed, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Yield the state after every step; z is None when all is revealed.

        The SNR of a state is that of its hidden tokens.
        """
        state = noised(denoiser, start, generator) if start.step == 0 else start
        for k in range(start.step, self.num_steps):
            t, s = 1 - k / self.num_steps, 1 - (k + 1) / self.num_steps
            state = replace(self._back(denoiser, state, t, s, generator), step=k + 1)
            yield state

    def _back(
        self, denoiser: Mixed, state: State, t: float, s: float, generator: Randomness
    ) -> State:
        """Reveal some of the guesses, and let the others pull the states on."""
        z = noisy(state)
        shape, device = state.tokens.shape, state.tokens.device
        luck = uniform(shape, generator=generator, dtype=torch.float64, device=device)
        u = uniform(shape, generator=generator, dtype=torch.float64, device=device)
        hidden = state.masked
        logits, state = ask_mixed(denoiser, state, t)
        guessed = state.commit(hidden, *self.draw(logits, u[hidden]))
        kept = hidden & (luck >= (t - s) / t)
        gamma_t, gamma_s = denoiser.snr_at(torch.tensor([t, s], dtype=torch.float64)).tolist()
        x = denoiser.codebook.detach().double()[guessed.tokens]
        z = advance(z, x, (gamma_s - gamma_t) * kept.double(), generator=generator)
        z = z * kept.unsqueeze(-1)  # what is revealed has no noise left
        reached = guessed.remask(kept)
        if s == 0:
            return replace(reached, z=None, snr=None)
        return replace(reached, z=z, snr=z.new_full(shape, gamma_s))


def noised(denoiser: Mixed, state: State, generator: Randomness) -> State:
    """Begin with noise of the variance that states have at t = 1, where nothing is pinned."""
    d = denoiser.codebook.shape[1]
    shape, device = (*state.tokens.shape, d), state.tokens.device
    first = float(denoiser.snr_at(torch.ones((), dtype=torch.float64)))
    noise = normal(shape, generator=generator, dtype=torch.float64, device=device)
    z = first**0.5 * noise * state.masked.unsqueeze(-1)
    return replace(state, z=z, snr=z.new_full(state.tokens.shape, first))


def noisy(state: State) -> Noisy:
    """Return the states of the hidden tokens; those of the others are 0."""
    assert state.z is not None, "a walk that is not at its end has noisy states"
    return state.z


def ask_mixed(denoiser: Mixed, state: State, t: float) -> tuple[Float[Tensor, "n v"], State]:
    """Ask about the hidden tokens, and count the sequences that have any."""
    asked = state.masked.any(dim=1)
    state = replace(state, nfe=state.nfe + asked.long())
    if not asked.any():
        return torch.zeros(0, denoiser.vocab_size, device=state.tokens.device), state
    tokens, z = state.tokens[asked], noisy(state)[asked].to(denoiser.codebook.dtype)
    with torch.no_grad():
        times = z.new_full((len(z),), t)
        return denoiser.at_mixture(Endpoints(tokens, z), times)[state.masked[asked]], state
