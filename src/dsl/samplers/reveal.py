"""Masked paths whose reveal order is drawn up front: ROAR, causal and first-hitting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from dsl.core.denoiser import Denoiser, Prefixed
from dsl.core.streams import Randomness, Streams, uniform
from dsl.samplers.base import Sampler, ask
from dsl.samplers.draw import Draw
from dsl.samplers.masked import END, remove_noise, require_steps
from dsl.samplers.state import State


@dataclass(frozen=True)
class Reveal:
    """One token at a time: in a random order it is ROAR, from left to right it is causal (C.5)."""

    order: Literal["random", "shared", "causal"] = "random"
    """Random for each sequence, or shared by the whole batch as in the paper, or left to right."""
    draw: Draw = Draw()

    @property
    def asks(self) -> type:
        """The causal order only needs the next token after a prefix."""
        return Prefixed if self.order == "causal" else Denoiser

    def steps(
        self, denoiser: Denoiser, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Reveal the masked positions in their order, one row per step."""
        plan = self.plan(start, generator) if start.memory is None else start.memory
        start = replace(start, memory=plan)
        yield from until_done(denoiser, start, plan.shape[1], self.draw, generator)

    def plan(self, state: State, generator: Randomness) -> Int[Tensor, "b l"]:
        """Rank the masked positions of every sequence."""
        b, length = state.tokens.shape
        device = state.tokens.device
        if self.order == "causal":
            keys = torch.arange(length, device=device).double().expand(b, length)
        elif self.order == "shared":
            first = generator.take([0]) if isinstance(generator, Streams) else generator
            keys = uniform((1, length), generator=first, dtype=torch.float64, device=device)
        else:
            keys = state.uniform(generator)
        keys = keys.expand(b, length).masked_fill(~state.masked, torch.inf)
        return keys.argsort(dim=1, stable=True).argsort(dim=1)


@dataclass(frozen=True)
class FirstHitting:
    """MDLM in T steps with every position's reveal step drawn up front.

    A position is revealed at a time τ ~ U(0, 1), in the step whose interval contains τ. This is the
    distribution of the T-step ancestral sampler, with one call for each non-empty step.
    """

    num_steps: int
    draw: Draw = Draw()
    asks: ClassVar[type] = Denoiser

    def __post_init__(self) -> None:
        require_steps(self.num_steps)

    def steps(
        self, denoiser: Denoiser, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Follow the plan, then reveal greedily the positions that were never hit."""
        plan = self.plan(start, generator) if start.memory is None else start.memory
        state = replace(start, memory=plan)
        for reached in follow(denoiser, state, self.num_steps, self.draw, generator):
            state = reached
            yield state
        if start.step <= self.num_steps:
            yield remove_noise(denoiser, state)

    def plan(self, state: State, generator: Randomness) -> Int[Tensor, "b l"]:
        """Draw the step that reveals each position; num_steps where none does."""
        tau = state.uniform(generator)
        hit = ((1 - tau) / ((1 - END) / self.num_steps)).long()
        return hit.clamp(max=self.num_steps)


def follow(
    denoiser: Denoiser, start: State, num_steps: int, draw: Draw, generator: Randomness
) -> Iterator[State]:
    """Reveal the positions of each step of the plan, which is the state's memory."""
    state = start
    plan: Int[Tensor, "b l"] = start.memory
    for step in range(start.step, num_steps):
        u = state.uniform(generator)
        due = state.masked & (plan == step)
        logits, state = ask(denoiser, state, state.endpoints, due)
        state = replace(state.commit(due, *draw(logits, u[due])), step=step + 1)
        yield state


def until_done(
    denoiser: Denoiser, start: State, num_steps: int, draw: Draw, generator: Randomness
) -> Iterator[State]:
    """Follow the plan, and yield no state after the last token of the batch is revealed.

    The random numbers of all steps are drawn, so that the stream of a sequence is in the same state
    afterwards, whatever its neighbours are.
    """
    plan: Int[Tensor, "b l"] = start.memory
    longest = int(torch.where(start.masked, plan + 1, 0).max()) if plan.numel() else 0
    for state in follow(denoiser, start, num_steps, draw, generator):
        if state.step <= longest:
            yield state


def first_hitting(num_steps: int | None = None, *, draw: Draw = Draw()) -> Sampler:
    """Draw the reveal times up front: MDLM in T steps; without T, one token at a time."""
    return Reveal(draw=draw) if num_steps is None else FirstHitting(num_steps, draw)


def roar(*, shared: bool = False, draw: Draw = Draw()) -> Sampler:
    """Random-order autoregression; `shared` takes one order for the batch, as the paper did."""
    return Reveal("shared" if shared else "random", draw)


def causal(*, draw: Draw = Draw()) -> Sampler:
    """Left-to-right autoregression."""
    return Reveal("causal", draw)
