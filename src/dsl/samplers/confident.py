"""Masked paths that reveal the most confident positions first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.core.denoiser import Denoiser
from dsl.core.streams import Randomness
from dsl.samplers.base import ask
from dsl.samplers.draw import Draw
from dsl.samplers.masked import require_steps
from dsl.samplers.state import State

Sureness = Literal["probability", "margin", "entropy"]


@dataclass(frozen=True)
class Confident:
    """Reveal the most confident tokens first, an equal share of them in every step.

    Positions are chosen before tokens are drawn. So with one token per step the order depends only
    on revealed tokens, and the distribution is the same as for any other order. Drawing first and
    keeping the most probable draws would be biased towards likely tokens.
    """

    num_steps: int
    order: Sureness = "probability"
    """Confidence: top-1 probability, top-1/top-2 margin, or negative entropy."""
    draw: Draw = Draw()
    asks: ClassVar[type] = Denoiser

    def __post_init__(self) -> None:
        require_steps(self.num_steps)

    def steps(
        self, denoiser: Denoiser, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Predict all masked tokens and reveal the most confident ones, T times."""
        state = start
        for step in range(start.step, self.num_steps):
            u, hidden = state.uniform(generator), state.masked
            logits, state = ask(denoiser, state, state.endpoints, hidden)
            sure = torch.full_like(state.confidence, -torch.inf)
            sure[hidden] = sureness(logits, self.order)
            due = (hidden.sum(dim=1, keepdim=True) / (self.num_steps - step)).ceil()
            rank = sure.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
            chosen = hidden & (rank < due)
            state = state.commit(chosen, *self.draw(logits[chosen[hidden]], u[chosen]))
            state = replace(state, step=step + 1)
            yield state


def sureness(logits: Float[Tensor, "n v"], order: Sureness) -> Float[Tensor, "n"]:
    """Return the confidence of each row of logits; larger is more confident."""
    log_p = logits.double().log_softmax(dim=-1)
    if order == "entropy":
        return (log_p.exp() * log_p.clamp(min=-1e4)).sum(dim=-1)
    best = log_p.exp().topk(min(2, log_p.shape[-1]), dim=-1).values
    return best[:, 0] if order == "probability" else best[:, 0] - best[:, -1]
