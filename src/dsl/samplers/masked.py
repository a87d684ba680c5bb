"""Masked paths: reveal and remask a few tokens at a time (algorithm 2)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.core.alpha import Linear, Named, ScheduleName
from dsl.core.alpha import schedule as named
from dsl.core.denoiser import Denoiser
from dsl.core.streams import Randomness
from dsl.core.types import Mask
from dsl.samplers.base import Sampler, ask
from dsl.samplers.draw import Draw
from dsl.samplers.state import State

END = 1e-5
"""The end of the time grid; tokens still masked there are revealed by noise removal."""


@dataclass(frozen=True)
class Interval:
    """One step of a masked path: α rises from alpha_t to alpha_s."""

    alpha_t: float
    alpha_s: float
    remask: bool = True
    """Whether the remask rule is in force."""


@dataclass(frozen=True)
class Loop:
    """ReMDM-loop: reveal up to α_on, stay there while remasking, then reveal the rest.

    With the default window, 45% of the steps reveal, 50% loop and 5% finish.
    """

    t_on: float = 0.55
    t_off: float = 0.05
    alpha_on: float = 0.9

    def __post_init__(self) -> None:
        if not (0 < self.t_off < self.t_on < 1 and 0 < self.alpha_on < 1):
            raise ValueError(
                "a loop needs 0 < t_off < t_on < 1 and 0 < alpha_on < 1, "
                f"got t_off={self.t_off}, t_on={self.t_on}, alpha_on={self.alpha_on}"
            )

    def interval(self, t: float, s: float) -> Interval:
        """Return α at both ends of a step, by the phase its beginning lies in."""
        if t > self.t_on:
            slope = self.alpha_on / (1 - self.t_on)
            return Interval((1 - t) * slope, (1 - s) * slope, remask=False)
        if t > self.t_off:
            return Interval(self.alpha_on, self.alpha_on)
        slope = (1 - self.alpha_on) / self.t_off
        return Interval(1 - t * slope, 1 - s * slope, remask=False)


Alpha = Named | Loop


def intervals(alpha: Alpha, steps: int) -> list[Interval]:
    """Cut [1, 1e-5] into equal steps, as MDLM and ReMDM do."""
    dt = (1 - END) / steps
    times = [1 - k * dt for k in range(steps + 1)]
    if isinstance(alpha, Loop):
        return [alpha.interval(t, s) for t, s in pairwise(times)]
    shares = alpha(torch.tensor(times, dtype=torch.float64)).tolist()
    return [Interval(alpha_t, alpha_s) for alpha_t, alpha_s in pairwise(shares)]


@dataclass(frozen=True)
class Never:
    """MDLM: a revealed token stays."""

    def __call__(self, step: Interval, state: State) -> Float[Tensor, "b l"]:
        """Return σ = 0."""
        return _constant(0.0, state)


@dataclass(frozen=True)
class ForwardBackward:
    """FB: remask as many tokens as α gains in the step, on average: σ = (α_s - α_t)/α_t."""

    official: bool = False
    """Do not cap σ at σ_max, as ReMDM's code does not. They differ in the last step, where σ_max
    is almost 0: it remasks 1/T of the positions, which noise removal then fills greedily."""

    def __call__(self, step: Interval, state: State) -> Float[Tensor, "b l"]:
        """Return σ."""
        sigma = (step.alpha_s - step.alpha_t) / step.alpha_t if step.alpha_t > 0 else 1.0
        return _constant(sigma if self.official else min(sigma, largest(step)), state)


@dataclass(frozen=True)
class Cap:
    """ReMDM-cap: σ = min(η, σ_max). In a flat stretch of α it is ReMDM-loop's constant η."""

    eta: float = 0.008

    def __post_init__(self) -> None:
        _require_eta(self.eta)

    def __call__(self, step: Interval, state: State) -> Float[Tensor, "b l"]:
        """Return σ."""
        return _constant(min(self.eta, largest(step)), state)


@dataclass(frozen=True)
class Rescale:
    """ReMDM-rescale: σ = η σ_max."""

    eta: float = 0.015

    def __post_init__(self) -> None:
        _require_eta(self.eta)

    def __call__(self, step: Interval, state: State) -> Float[Tensor, "b l"]:
        """Return σ."""
        return _constant(self.eta * largest(step), state)


@dataclass(frozen=True)
class Confidence:
    """ReMDM-conf: share σ_max among the visible tokens, most of it to the least confident ones.

    The share is a softmax over positions of -p, where p is the probability with which the token was
    drawn. So on average at most one token is remasked in a step.
    """

    def __call__(self, step: Interval, state: State) -> Float[Tensor, "b l"]:
        """Return σ for every position."""
        doubt = (-state.confidence).masked_fill(state.masked | state.fixed, -torch.inf)
        # Where nothing is visible the softmax is 0/0: nothing to remask.
        return doubt.softmax(dim=-1).nan_to_num(0.0) * largest(step)


Remask = Never | ForwardBackward | Cap | Rescale | Confidence


def largest(step: Interval) -> float:
    """Return σ_max = min(1, (1 - α_s)/α_t), the largest σ with a valid reveal probability."""
    return min(1.0, (1 - step.alpha_s) / step.alpha_t) if step.alpha_t > 0 else 1.0


def _constant(sigma: float, state: State) -> Float[Tensor, "b l"]:
    return torch.full_like(state.confidence, sigma)


def _require_eta(eta: float) -> None:
    if not 0 <= eta <= 1:
        raise ValueError(f"eta must lie in [0, 1], got {eta}")


MOST_STEPS = 1_000_000
"""Larger budgets are refused as typing errors."""


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
    asks: ClassVar[type] = Denoiser

    def __post_init__(self) -> None:
        require_steps(self.num_steps)

    def steps(
        self, denoiser: Denoiser, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Follow the schedule, then reveal the remaining tokens greedily."""
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

    Which positions move is drawn first, so the denoiser computes the revealed rows only,
    and skips sequences that reveal nothing. It has no time input, so the distribution is exactly
    that of predicting first and choosing afterwards.
    """
    luck, u = state.uniform(generator), state.uniform(generator)
    visible = ~state.masked & state.free
    hidden = visible & (luck < remask)
    drawn = state.masked & (luck < reveal)
    if refresh:
        drawn = drawn | (visible & ~hidden)
    logits, state = ask(denoiser, state, state.endpoints, drawn)
    state = state.commit(drawn, *draw(logits, u[drawn])).remask(hidden)
    return replace(state, step=state.step + 1)


def remove_noise(denoiser: Denoiser, state: State) -> State:
    """Reveal all masked positions with their most likely tokens."""
    logits, state = ask(denoiser, state, state.endpoints, state.masked)
    greedy = Draw(temperature=0.0)
    at: Mask = state.masked
    state = state.commit(at, *greedy(logits, state.confidence.new_zeros(len(logits))))
    return replace(state, step=state.step + 1)


def require_steps(steps: int) -> None:
    """Raise an error for fewer than one step or more than MOST_STEPS."""
    if steps < 1:
        raise ValueError(f"a sampler needs at least one step, got {steps}")
    if steps > MOST_STEPS:
        raise ValueError(f"a sampler makes at most {MOST_STEPS:,} steps, got {steps:,}")


ETA_CAP = {
    # Equation eta_cap_values of C.4. The rewrite counts the paper reports fit these values only:
    # η α_on T/2 = .576, .922, 1.613, 1.843 remasks per token.
    "equation": {128: 0.010, 256: 0.008, 512: 0.007, 1024: 0.004},
    # Tables owt_sampler_hparams and rewrite_stats, which differ at 512 and 1024.
    "table": {128: 0.010, 256: 0.008, 512: 0.008, 1024: 0.002},
}


def eta_cap(steps: int, source: Literal["equation", "table"] = "equation") -> float:
    """Return η_cap(T): the paper's value, between its budgets a geometric interpolation."""
    known = ETA_CAP[source]
    if steps in known:
        return known[steps]
    budgets = sorted(known)
    if steps <= budgets[0] or steps >= budgets[-1]:
        return known[budgets[0] if steps <= budgets[0] else budgets[-1]]
    right = next(budget for budget in budgets if budget > steps)
    left = budgets[budgets.index(right) - 1]
    weight = math.log(steps / left) / math.log(right / left)
    return float(known[left] ** (1 - weight) * known[right] ** weight)


def mdlm(
    num_steps: int,
    *,
    refresh_unmasked: bool = False,
    schedule: ScheduleName = "linear",
    power: float = 2.0,
    draw: Draw = Draw(),
) -> Sampler:
    """MDLM: reveal each token once, at a random time; MD4's grid is schedule=cosine.

    The power is the polynomial schedule's.
    """
    alpha = named(schedule, power)
    return Ancestral(num_steps, alpha, draw=draw, refresh_unmasked=refresh_unmasked)


def fb(num_steps: int, *, official: bool = False, draw: Draw = Draw()) -> Sampler:
    """MDLM with forward-backward correction; `official` remasks in the last step too."""
    return Ancestral(num_steps, remask=ForwardBackward(official), draw=draw)


def remdm_cap(
    num_steps: int, *, eta: float = 0.008, refresh_unmasked: bool = False, draw: Draw = Draw()
) -> Sampler:
    """ReMDM with a capped remask probability; eta is the official script's."""
    return Ancestral(num_steps, remask=Cap(eta), draw=draw, refresh_unmasked=refresh_unmasked)


def remdm_rescale(
    num_steps: int, *, eta: float = 0.015, refresh_unmasked: bool = False, draw: Draw = Draw()
) -> Sampler:
    """ReMDM with a rescaled remask probability; eta is the official script's."""
    return Ancestral(num_steps, remask=Rescale(eta), draw=draw, refresh_unmasked=refresh_unmasked)


def remdm_conf(num_steps: int, *, refresh_unmasked: bool = False, draw: Draw = Draw()) -> Sampler:
    """ReMDM that remasks the least confident tokens."""
    return Ancestral(num_steps, remask=Confidence(), draw=draw, refresh_unmasked=refresh_unmasked)


def remdm_loop(
    num_steps: int,
    *,
    eta: float | None = None,
    eta_source: Literal["equation", "table"] = "equation",
    t_on: float = 0.55,
    t_off: float = 0.05,
    alpha_on: float = 0.9,
    refresh_unmasked: bool = False,
    draw: Draw = Draw(),
) -> Sampler:
    """ReMDM-loop: reveal 90%, stay there remasking, then finish; eta defaults to η_cap(T).

    A step finishes if it begins at t <= t_off. The last one begins at 1/T, so with t_off = 0.05
    up to T = 20 none does, and the tokens that are still masked are revealed greedily.
    """
    rule = Cap(eta_cap(num_steps, eta_source) if eta is None else eta)
    return Ancestral(num_steps, Loop(t_on, t_off, alpha_on), rule, draw, refresh_unmasked)
