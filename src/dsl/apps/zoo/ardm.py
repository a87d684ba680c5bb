"""ARDM: order-agnostic autoregression with a parallel sampler (Hoogeboom et al., 2021).

With k of l tokens known at random positions, a masked token costs ℓ_k nats on average. A step that
reveals j tokens at once costs j ℓ_k. Training tracks ℓ_k, and the sampler finds the cheapest T
steps by dynamic programming (after Watson et al., 2021).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dsl.conditioning import innermost
from dsl.core import MASK, Denoiser, Endpoints, Mask, Randomness, Streams, Tokens, permutation
from dsl.families import (
    Loss,
    MaskedFamily,
    MdlmModel,
    MdlmShape,
    Objective,
    counted,
    falling,
    stratified,
    surprise,
    tallied,
)
from dsl.samplers import Draw, Reveal, State, require_steps, until_done


@dataclass(frozen=True)
class ArdmOptions:
    """Options of ARDM's objective."""

    decay: float = 0.999
    """Decay per step of the running losses ℓ_k."""

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1:
            raise ValueError(f"decay must lie in [0, 1), got {self.decay}")


class ArdmModel(MdlmModel):
    """MDLM's network, tensor for tensor, and running sums of its losses by known tokens."""

    known_losses: Tensor
    known_counts: Tensor

    def __init__(self, config: MdlmShape) -> None:
        super().__init__(config)
        self.register_buffer("known_losses", torch.zeros(config.model_length))
        self.register_buffer("known_counts", torch.zeros(config.model_length))

    @property
    def loss_by_known(self) -> Float[Tensor, "n"]:
        """The mean loss of a masked token when k tokens are known; linear if never trained.

        It is made non-increasing by averaging: dynamic programming would exploit noise.
        """
        counts = self.known_counts
        if not bool((counts > 0).all()):
            return 1 - torch.arange(len(counts), device=counts.device) / len(counts)
        return falling(self.known_losses / counts, counts)


class ArdmObjective(Objective):
    """l/(l-k) Σ_{i ∉ A} -log p(x_i | x_A) with k ~ U{0, …, l-1} known tokens A: ROAR's bound."""

    model: ArdmModel

    def __init__(self, model: ArdmModel, config: ArdmOptions) -> None:
        super().__init__()
        self.model, self.config = model, config

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Draw the number of known tokens of each sequence, stratified over the global batch."""
        b, length = tokens.shape
        u = stratified(streams, places, batch, tokens.device, torch.float64)
        k = (u * length).long().clamp(max=length - 1)
        hidden = permutation((b, length), generator=streams, device=tokens.device) >= k
        losses = hidden_losses(self.model, tokens, hidden, hidden)
        weighted = losses * (length / (length - k))
        parts = tallied(weighted) | {"masked": (losses.detach().sum(), hidden.sum())}
        return Loss(weighted.sum(), counted(tokens), parts, self._by_known(losses, k))

    def _by_known(self, losses: Float[Tensor, "b l"], k: Tensor) -> Float[Tensor, "n"]:
        """Return sums and counts of the mean masked losses by number of known tokens."""
        length, n = losses.shape[1], self.model.config.model_length
        at = (k * n // length).squeeze(1)
        mean = (losses.detach().sum(dim=1, keepdim=True) / (length - k)).squeeze(1).double()
        sums = mean.new_zeros(n).index_add(0, at, mean)
        return torch.cat([sums, torch.bincount(at, minlength=n).to(sums)])

    def learn(self, sums: Float[Tensor, "n"]) -> None:
        """Add the losses of the step to the running sums."""
        kept = (self.model.known_losses, self.model.known_counts)
        for own, new in zip(kept, sums.chunk(2), strict=True):
            own.mul_(self.config.decay).add_(new.to(own))


class ArdmFamily(MaskedFamily):
    """Order-agnostic autoregression."""

    name = "ardm"
    summary = "order-agnostic autoregression: every masked path, and steps planned by its losses"
    Options = ArdmOptions
    Network = ArdmModel

    def objective(self, network: ArdmModel, options: ArdmOptions) -> Objective:
        """Train by the bound over all orders."""
        return ArdmObjective(network, options)


def hidden_losses(model: MdlmModel, tokens: Tokens, hidden: Mask, at: Mask) -> Float[Tensor, "b l"]:
    """Return -log p(x_i | visible tokens) at the chosen positions and 0 elsewhere."""
    return surprise(model(Endpoints(tokens.masked_fill(hidden, MASK)), at=at), tokens, at)


TIE = 1e-6
"""The weight of a linear profile that is added to ℓ. It selects equal steps where ℓ is flat."""


@runtime_checkable
class Profiled(Protocol):
    """A network that has its mean losses by number of known tokens."""

    @property
    def loss_by_known(self) -> Float[Tensor, "n"]:
        """The mean loss of a masked token when k = 0, …, n-1 of n tokens are known."""
        ...


@dataclass(frozen=True)
class Parallel:
    """ARDM's parallel sampler: a random order in T steps, planned by the network's own losses."""

    num_steps: int
    draw: Draw = Draw()
    asks: ClassVar[type] = Denoiser

    def __post_init__(self) -> None:
        require_steps(self.num_steps)

    def steps(
        self, denoiser: Denoiser, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Reveal the planned positions of every step from one network call."""
        plan = self.plan(denoiser, start, generator) if start.memory is None else start.memory
        steps = min(self.num_steps, plan.shape[1])
        yield from until_done(denoiser, replace(start, memory=plan), steps, self.draw, generator)

    def plan(self, denoiser: Denoiser, state: State, generator: Randomness) -> Int[Tensor, "b l"]:
        """Draw an order of the masked positions, and return the step that reveals each."""
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
    """Return a network's ℓ_k, interpolated to the length; without any, a line that falls to 0.

    For a line, equal steps are cheapest.
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
    """Return how many tokens each step reveals, such that Σ j ℓ_k over the steps is minimal.

    Every step reveals at least one token, so there are no more steps than masked tokens.

    Args:
        losses: ℓ_k, the mean loss of a masked token when k tokens are known.
        steps: T.
        known: Numbers of known tokens at the start; there is one result for each.
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
    """Return the best k' after the next step, for t = 1, …, T steps left and every k.

    C_t(k) = min over k' > k of (k' - k) ℓ_k + C_{t-1}(k'); C_0 is 0 at k = l, else infinite.
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
