"""The ancestral sampler of discrete diffusion: from noise through q(x_s | x_t, x̂_0) to tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.denoiser import Network, Question, Scored, Timed
from dsl.kernel import Kernel
from dsl.sampling.ancestral import require_steps
from dsl.sampling.categorical import Draw
from dsl.sampling.sampler import TIME
from dsl.sampling.state import State
from dsl.streams import Randomness, uniform
from dsl.types import Logits, Mask, Tokens


@dataclass(frozen=True)
class TimedAncestral:
    """T equal steps of time from pure noise to t = 0, along the network's own process."""

    num_steps: int
    draw: Draw = Draw()
    """How x̂_0 is sharpened before the posterior is taken."""
    needs: ClassVar[frozenset[Question]] = TIME

    def __post_init__(self) -> None:
        require_steps(self.num_steps)

    def steps(
        self, denoiser: Timed, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Yield the state after every step; under uniform noise its tokens are no masks."""
        state = start
        if start.step == 0:
            state = noised(denoiser, start, generator)
        for k in range(start.step, self.num_steps):
            t, s = 1 - k / self.num_steps, 1 - (k + 1) / self.num_steps
            live = unfinished(denoiser, state)
            logits, state = ask_at(denoiser, state, t, live)
            state = self._back(denoiser, state, logits, t, s, generator)
            state = replace(state, step=k + 1)
            yield state

    def _back(
        self,
        denoiser: Timed,
        state: State,
        logits: Logits,
        t: float,
        s: float,
        generator: Randomness,
    ) -> State:
        """Draw x_s given x_t and x̂_0."""
        b, length, v = logits.shape
        clean = self.draw.probabilities(logits.flatten(0, 1)).reshape(b, length, v)
        times = clean.new_tensor([t, s])
        alpha_t, alpha_s = denoiser.alpha(times).double().unbind()
        p = denoiser.kernel.posterior(state.tokens, clean, alpha_t.expand(b), alpha_s.expand(b))
        return drawn(state, p, denoiser.kernel, unfinished(denoiser, state), generator)


def noised(denoiser: Timed | Scored, state: State, generator: Randomness) -> State:
    """Put pure noise where nothing is pinned."""
    shape, device = state.tokens.shape, state.tokens.device
    noise = denoiser.kernel.pure(tuple(shape), generator=generator, device=device)
    return replace(state, tokens=torch.where(state.free, noise, state.tokens))


def unfinished(denoiser: Timed | Scored, state: State) -> Mask:
    """Choose the positions that a step may still change: what was revealed absorbs nothing more."""
    return state.free & denoiser.kernel.doubtful(state.tokens)


def ask_at(denoiser: Timed, state: State, t: float, live: Mask) -> tuple[Logits, State]:
    """Ask what the clean tokens are at a time."""
    return answered(denoiser, denoiser.at_time, state, t, live)


def answered(
    denoiser: Network,
    question: Callable[[Tokens, Tensor], Logits],
    state: State,
    t: float,
    live: Mask,
) -> tuple[Logits, State]:
    """Ask about every position at a time, and count the sequences that are not finished.

    Those that are get uniform rows: nobody reads them.
    """
    asked = live.any(dim=1)
    state = replace(state, nfe=state.nfe + asked.long())
    b, length = state.tokens.shape
    logits = torch.zeros(
        b, length, denoiser.vocab_size, dtype=torch.float64, device=state.tokens.device
    )
    if asked.any():
        with torch.no_grad():
            times = torch.full((int(asked.sum()),), t, device=state.tokens.device)
            logits[asked] = question(state.tokens[asked], times).double()
    return logits, state


def drawn(
    state: State, p: Float[Tensor, "b l states"], kernel: Kernel, at: Mask, generator: Randomness
) -> State:
    """Draw the chosen positions from rows over the kernel's states; one past all is the mask."""
    shape, device = state.tokens.shape, state.tokens.device
    u = uniform(shape, generator=generator, dtype=torch.float64, device=device)
    state = state.commit(at, *Draw()(p[at].log(), u[at]))
    return state.remask(at & (state.tokens == kernel.vocab_size))
