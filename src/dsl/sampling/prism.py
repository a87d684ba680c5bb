"""PRISM: masked paths that take back the tokens which the network itself rates worst."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dsl.denoiser import Denoiser, Question, Rated, RatedAtOnce, require_rated
from dsl.sampling.ancestral import require_steps
from dsl.sampling.categorical import Draw
from dsl.sampling.sampler import QUALITY, ask
from dsl.sampling.state import State
from dsl.streams import Randomness, uniform
from dsl.types import Mask


@dataclass(frozen=True)
class Prism:
    """Reveal equally many tokens in each of T steps, at random places, and make up for remasking.

    From some step on, each visible token gives a step the chance σ = min(η, σ_max) to take one
    back, as in ReMDM-cap; the tokens that go are those rated worst by the forward of that step.
    """

    num_steps: int
    draw: Draw = Draw()
    eta: float = 0.01
    """At 0 nothing is taken back: a random order in T parts."""
    on: float = 0.5
    """The share of the steps before tokens are taken back."""
    needs: ClassVar[frozenset[Question]] = QUALITY

    def __post_init__(self) -> None:
        require_steps(self.num_steps)
        if not (0 <= self.eta <= 1 and 0 <= self.on <= 1):
            raise ValueError(f"eta and on must lie in [0, 1], got {self.eta} and {self.on}")

    def steps(
        self, denoiser: Denoiser, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Yield the state after every step; its memory is how many masks each text began with."""
        rated = require_rated(denoiser)
        state = start
        if start.memory is None:
            state = replace(start, memory=start.masked.sum(dim=1))
        for k in range(start.step, self.num_steps):
            left = state.memory * (self.num_steps - k - 1) // self.num_steps
            eta = self.eta if k >= self.on * self.num_steps else 0.0
            state = self._step(rated, state, left, eta, generator)
            state = replace(state, step=k + 1)
            yield state

    def _step(
        self,
        denoiser: Rated,
        state: State,
        left: Int[Tensor, "b"],
        eta: float,
        generator: Randomness,
    ) -> State:
        """Leave so many tokens masked, whatever is taken back."""
        luck, u = _luck(state, generator), _luck(state, generator)
        visible = state.free & ~state.masked
        sigma = (left / visible.sum(dim=1).clamp(min=1)).clamp(max=eta).unsqueeze(1)
        count = (visible & (luck < sigma)).sum(dim=1).minimum(left)
        shown = lowest(luck, state.masked, state.masked.sum(dim=1) - left + count)
        logits, quality, state = rate(denoiser, state, shown, count > 0)
        worst = lowest(quality, visible, count, ties=luck)
        return state.commit(shown, *self.draw(logits, u[shown])).remask(worst)


@dataclass(frozen=True)
class PrismLoop:
    """Mend a text at a fixed share of masks: fill them, mask what is rated worst, and again.

    One forward tells both, what belongs where masks are and how good the other tokens are. The last
    step only fills.
    """

    num_steps: int
    draw: Draw = Draw()
    share: float = 0.1
    """Of the tokens that are free, rounded up."""
    needs: ClassVar[frozenset[Question]] = QUALITY

    def __post_init__(self) -> None:
        require_steps(self.num_steps)
        if not 0 <= self.share <= 0.5:  # above it, no others would be left to mask
            raise ValueError(f"share must lie in [0, 0.5], got {self.share}")

    def steps(
        self, denoiser: Denoiser, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Yield the state after every step."""
        rated = require_rated(denoiser)
        state = start
        count = (self.share * state.free.sum(dim=1)).ceil().long()
        for k in range(start.step, self.num_steps):
            luck, u = _luck(state, generator), _luck(state, generator)
            masked, visible = state.masked, state.free & ~state.masked
            due = count if k + 1 < self.num_steps else torch.zeros_like(count)
            logits, quality, state = rate(rated, state, masked, due > 0)
            worst = lowest(quality, visible, due, ties=luck)
            state = state.commit(masked, *self.draw(logits, u[masked])).remask(worst)
            state = replace(state, step=k + 1)
            yield state


def rate(
    denoiser: Rated, state: State, at: Mask, rated: Bool[Tensor, "b"]
) -> tuple[Float[Tensor, "n v"], Float[Tensor, "b l"], State]:
    """Ask for the logits of the chosen rows, and for the quality of the chosen sequences' tokens.

    Every forward of a sequence counts: one, if the network tells both at once, else two.
    """
    quality = torch.ones_like(state.confidence)
    live = at.any(dim=1) | rated
    if rated.any() and isinstance(denoiser, RatedAtOnce):
        with torch.no_grad():
            logits, found = denoiser.rated(state.endpoints[live], at=at[live])
        quality[live] = found.to(quality)
        state = replace(state, nfe=state.nfe + live.long())
    else:
        z = state.endpoints
        logits, state = ask(denoiser, state, z, at)
        if rated.any():
            with torch.no_grad():
                quality[rated] = denoiser.quality(z[rated]).to(quality)
            state = replace(state, nfe=state.nfe + rated.long())
    if quality[~state.masked & rated.unsqueeze(1)].isnan().any():
        raise ValueError("the network returned NaN as the quality of a token")
    return logits, quality, state


def lowest(
    score: Float[Tensor, "b l"],
    among: Mask,
    count: Int[Tensor, "b"],
    *,
    ties: Float[Tensor, "b l"] | None = None,
) -> Mask:
    """Choose so many positions with the lowest scores; of equal ones, those with the lowest tie."""
    score = score.masked_fill(~among, torch.inf)
    first = (score if ties is None else ties).argsort(dim=1, stable=True)
    order = first.gather(1, score.gather(1, first).argsort(dim=1, stable=True))
    return among & (order.argsort(dim=1) < count.unsqueeze(1))


def _luck(state: State, generator: Randomness) -> Float[Tensor, "b l"]:
    return uniform(
        state.tokens.shape, generator=generator, dtype=torch.float64, device=state.tokens.device
    )
