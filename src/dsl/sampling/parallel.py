"""ARDM's parallel sampler: T steps, cut where the losses of the network say it costs least.

With k of l tokens known in random places, a masked token costs ℓ_k nats in the mean. A step that
reveals j tokens at once costs j ℓ_k, though one at a time they would cost less; where to cut is
found by dynamic programming (Hoogeboom et al., 2021, after Watson et al., 2021).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dsl.around import innermost
from dsl.denoiser import Denoiser, Question
from dsl.sampling.ancestral import require_steps
from dsl.sampling.categorical import Draw
from dsl.sampling.reveal import Reveal, until_done
from dsl.sampling.sampler import ENDPOINTS
from dsl.sampling.state import State
from dsl.streams import Randomness

TIE = 1e-6
"""How much of an evenly falling profile is mixed in: where ℓ is flat all cuts cost the same, and
this chooses equal steps among them."""


@runtime_checkable
class Profiled(Protocol):
    """A network that knows what a token costs it."""

    @property
    def loss_by_known(self) -> Float[Tensor, "n"]:
        """The mean loss of a masked token when k = 0, …, n-1 of n tokens are known."""
        ...


@dataclass(frozen=True)
class Parallel:
    """A random order in T steps, whose sizes are the cheapest for the network's own losses."""

    num_steps: int
    draw: Draw = Draw()
    needs: ClassVar[frozenset[Question]] = ENDPOINTS

    def __post_init__(self) -> None:
        require_steps(self.num_steps)

    def steps(
        self, denoiser: Denoiser, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Reveal in every step the positions that are due, all from one answer."""
        plan = self.plan(denoiser, start, generator) if start.memory is None else start.memory
        steps = min(self.num_steps, plan.shape[1])
        yield from until_done(denoiser, replace(start, memory=plan), steps, self.draw, generator)

    def plan(self, denoiser: Denoiser, state: State, generator: Randomness) -> Int[Tensor, "b l"]:
        """Draw an order of the masked positions, and say which step reveals each."""
        rank = Reveal("random").plan(state, generator)
        length = rank.shape[1]
        known, row = (~state.masked).sum(dim=1).unique(return_inverse=True)
        sizes = budget(profile(denoiser, length), self.num_steps, known.tolist())
        table = torch.zeros(len(known), length, dtype=torch.long)
        for steps, counts in zip(table, sizes, strict=True):
            due = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts).long())
            steps[: len(due)] = due
        return table.to(rank.device)[row].gather(1, rank)


def profile(network: object, length: int) -> Float[Tensor, "l"]:
    """Return the losses a network knows of, stretched to the length; else an even fall to 0.

    An even fall is cheapest in equal steps.
    """
    even = 1 - torch.arange(length, dtype=torch.float64) / max(length, 1)
    network = innermost(network)
    if not isinstance(network, Profiled) or length == 0:
        return even
    own = network.loss_by_known.detach().double().cpu().view(1, 1, -1)
    stretched = torch.nn.functional.interpolate(own, length, mode="linear", align_corners=True)
    losses = stretched.flatten()
    return losses + TIE * losses.max() * even


def budget(losses: Float[Tensor, "l"], steps: int, known: Iterable[int] = (0,)) -> list[list[int]]:
    """Return how many tokens each step reveals, so that Σ j ℓ_k over the steps is least.

    Every step reveals a token at least, so there are no more steps than masked tokens.

    Args:
        losses: ℓ_k, the mean loss of a masked token when k tokens are known.
        steps: T.
        known: How many tokens are known at the start; one answer for each.
    """
    onward = _cheapest(losses, min(steps, len(losses)))
    found = []
    for k in known:
        counts = []
        for left in range(min(steps, len(losses) - k), 0, -1):
            reached = int(onward[left - 1, k])
            counts.append(reached - k)
            k = reached
        found.append(counts)
    return found


def _cheapest(losses: Float[Tensor, "l"], steps: int) -> Int[Tensor, "t l"]:
    """Return how many tokens are best known after the next of t = 1, …, T steps left, from each k.

    C_t(k) = min over k' > k of (k' - k) ℓ_k + C_{t-1}(k'), and C_0 is 0 at the end only.
    """
    length = len(losses)
    k = torch.arange(length + 1, device=losses.device)
    revealed = k - k[:-1].unsqueeze(1)
    cost = (revealed * losses.double().unsqueeze(1)).masked_fill(revealed <= 0, torch.inf)
    rest = torch.full_like(k, torch.inf, dtype=torch.float64)
    rest[-1] = 0
    onward = []
    for _ in range(steps):
        least, reached = (cost + rest).min(dim=1)
        onward.append(reached)
        rest = torch.cat([least, rest.new_full((1,), torch.inf)])
    return torch.stack(onward) if onward else k.new_zeros(0, length)
