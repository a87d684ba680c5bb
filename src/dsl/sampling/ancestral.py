"""Masked paths: reveal and remask a few tokens at a time (algorithm 2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.alpha import Linear
from dsl.denoiser import Denoiser, Question
from dsl.sampling.categorical import Draw
from dsl.sampling.remask import Never, Remask
from dsl.sampling.sampler import ENDPOINTS, ask
from dsl.sampling.schedule import Alpha, Interval, intervals
from dsl.sampling.state import State
from dsl.streams import Randomness, uniform
from dsl.types import Mask

MOST_STEPS = 1_000_000
"""A budget above this is a slip of the finger."""


@dataclass(frozen=True)
class Ancestral:
    """MDLM and the whole ReMDM family: a schedule of α and a rule of remasking."""

    num_steps: int
    alpha: Alpha = Linear()
    remask: Remask = Never()
    draw: Draw = Draw()
    refresh_unmasked: bool = False
    """Draw visible tokens anew from their posterior where they are not remasked. DSL can, because
    its posterior at a visible position is not the token itself; it costs a forward every step."""
    needs: ClassVar[frozenset[Question]] = ENDPOINTS

    def __post_init__(self) -> None:
        require_steps(self.num_steps)

    def steps(
        self, denoiser: Denoiser, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Walk the schedule, then reveal greedily what is left."""
        state = start
        for step in intervals(self.alpha, self.num_steps)[start.step :]:
            sigma = self.remask(step, state) if step.remask else torch.zeros_like(state.confidence)
            state = move(
                denoiser,
                state,
                reveal_probability(step, sigma),
                sigma,
                self.draw,
                refresh=self.refresh_unmasked,
                generator=generator,
            )
            yield state
        if start.step <= self.num_steps:
            yield remove_noise(denoiser, state)


def reveal_probability(step: Interval, sigma: Float[Tensor, "b l"]) -> Float[Tensor, "b l"]:
    """Return the chance that a masked token is revealed: (α_s - (1 - σ) α_t) / (1 - α_t)."""
    return (step.alpha_s - (1 - sigma) * step.alpha_t) / (1 - step.alpha_t)


def move(
    denoiser: Denoiser,
    state: State,
    reveal: Float[Tensor, "b l"],
    remask: Float[Tensor, "b l"],
    draw: Draw,
    *,
    refresh: bool = False,
    generator: Randomness = None,
) -> State:
    """Reveal masked tokens and remask visible ones, each with its own probability.

    Which positions move is drawn first, so the denoiser is asked about the revealed rows only,
    and not at all about a sequence that reveals nothing. Since it has no clock, that is exactly
    the distribution of asking first and choosing afterwards.
    """
    shape, device = state.tokens.shape, state.tokens.device
    luck = uniform(shape, generator=generator, dtype=torch.float64, device=device)
    u = uniform(shape, generator=generator, dtype=torch.float64, device=device)
    visible = ~state.masked & state.free
    hidden = visible & (luck < remask)
    drawn = state.masked & (luck < reveal)
    if refresh:
        drawn = drawn | (visible & ~hidden)
    logits, state = ask(denoiser, state, state.endpoints, drawn)
    state = state.commit(drawn, *draw(logits, u[drawn])).remask(hidden)
    return replace(state, step=state.step + 1)


def remove_noise(denoiser: Denoiser, state: State) -> State:
    """Reveal what is still masked with its most likely token."""
    logits, state = ask(denoiser, state, state.endpoints, state.masked)
    greedy = Draw(temperature=0.0)
    at: Mask = state.masked
    state = state.commit(at, *greedy(logits, state.confidence.new_zeros(len(logits))))
    return replace(state, step=state.step + 1)


def require_steps(steps: int) -> None:
    """Refuse a walk without steps, or with so many that somebody's finger slipped."""
    if steps < 1:
        raise ValueError(f"a sampler needs at least one step, got {steps}")
    if steps > MOST_STEPS:
        raise ValueError(f"a sampler makes at most {MOST_STEPS:,} steps, got {steps:,}")
