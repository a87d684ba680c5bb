"""Masked paths whose order is the network's own: what it is surest of comes first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.denoiser import Denoiser, Question
from dsl.sampling.ancestral import require_steps
from dsl.sampling.categorical import Draw
from dsl.sampling.sampler import ENDPOINTS, ask
from dsl.sampling.state import State
from dsl.streams import Randomness, uniform

Sureness = Literal["probability", "margin", "entropy"]


@dataclass(frozen=True)
class Confident:
    """Reveal in each of T steps an equal share of the masked tokens, the surest ones.

    Which they are is decided before any is drawn. So with one token a step the order depends on
    nothing but what is known already, and the distribution is that of any other order. Drawing
    first and keeping what came out with a high probability would prefer likely tokens.
    """

    num_steps: int
    order: Sureness = "probability"
    """Sure is who gives the best token a high probability, or one far above the second's, or who
    has little entropy."""
    draw: Draw = Draw()
    needs: ClassVar[frozenset[Question]] = ENDPOINTS

    def __post_init__(self) -> None:
        require_steps(self.num_steps)

    def steps(
        self, denoiser: Denoiser, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Ask about all masked tokens, reveal the surest, T times."""
        state = start
        shape, device = start.tokens.shape, start.tokens.device
        for step in range(start.step, self.num_steps):
            u = uniform(shape, generator=generator, dtype=torch.float64, device=device)
            hidden = state.masked
            logits, state = ask(denoiser, state, state.endpoints, hidden)
            sure = torch.full(shape, -torch.inf, dtype=torch.float64, device=device)
            sure[hidden] = sureness(logits, self.order)
            due = (hidden.sum(dim=1, keepdim=True) / (self.num_steps - step)).ceil()
            rank = sure.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
            chosen = hidden & (rank < due)
            state = state.commit(chosen, *self.draw(logits[chosen[hidden]], u[chosen]))
            state = replace(state, step=step + 1)
            yield state


def sureness(logits: Float[Tensor, "n v"], order: Sureness) -> Float[Tensor, "n"]:
    """Say how sure rows of logits are: the larger, the surer."""
    log_p = logits.double().log_softmax(dim=-1)
    if order == "entropy":
        return (log_p.exp() * log_p.clamp(min=-1e4)).sum(dim=-1)
    best = log_p.exp().topk(min(2, log_p.shape[-1]), dim=-1).values
    return best[:, 0] if order == "probability" else best[:, 0] - best[:, -1]
