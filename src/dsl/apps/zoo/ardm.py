"""ARDM's parallel sampler: T steps, cut where the losses of the network say it costs least.

With k of l tokens known in random places, a masked token costs ℓ_k nats in the mean. A step that
reveals j tokens at once costs j ℓ_k, though one at a time they would cost less; where to cut is
found by dynamic programming (Hoogeboom et al., 2021, after Watson et al., 2021).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from dsl.conditioning import innermost
from dsl.core import MASK, Denoiser, Endpoints, Mask, Randomness, Streams, Tokens, permutation
from dsl.families import (
    Family,
    Level,
    Loss,
    Masked,
    MdlmModel,
    MdlmShape,
    Objective,
    counted,
    falling,
    stratified,
    surprise,
    tallied,
)
from dsl.likelihoods import Effort, Estimator, Roar
from dsl.samplers import Draw, Reveal, State, require_steps, until_done


@dataclass(frozen=True)
class ArdmOptions:
    """What ARDM's objective leaves open."""

    decay: float = 0.999
    """How much of the losses by number of known tokens is kept at every step."""

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1:
            raise ValueError(f"decay must lie in [0, 1), got {self.decay}")


class ArdmModel(MdlmModel):
    """MDLM's network, tensor for tensor, and what training found a token to cost it."""

    known_losses: Tensor
    known_counts: Tensor

    def __init__(self, config: MdlmShape) -> None:
        super().__init__(config)
        self.register_buffer("known_losses", torch.zeros(config.model_length))
        self.register_buffer("known_counts", torch.zeros(config.model_length))

    @property
    def loss_by_known(self) -> Float[Tensor, "n"]:
        """The mean loss of a masked token when k tokens are known; an even fall if never trained.

        Knowing more never costs more, so noise that says otherwise is averaged away: dynamic
        programming would find and exploit it.
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
        """Show each sequence its own number of tokens, stratified over the global batch."""
        b, length = tokens.shape
        u = stratified(streams, places, batch, tokens.device, torch.float64)
        k = (u * length).long().clamp(max=length - 1)
        hidden = permutation((b, length), generator=streams, device=tokens.device) >= k
        losses = hidden_losses(self.model, tokens, hidden, hidden)
        weighted = losses * (length / (length - k))
        parts = tallied(weighted) | {"masked": (losses.detach().sum(), hidden.sum())}
        return Loss(weighted.sum(), counted(tokens), parts, self._by_known(losses, k))

    def _by_known(self, losses: Float[Tensor, "b l"], k: Tensor) -> Float[Tensor, "n"]:
        """Add up the mean losses of masked tokens by how many are known, and count them."""
        length, n = losses.shape[1], self.model.config.model_length
        at = (k * n // length).squeeze(1)
        mean = (losses.detach().sum(dim=1, keepdim=True) / (length - k)).squeeze(1).double()
        sums = mean.new_zeros(n).index_add(0, at, mean)
        return torch.cat([sums, torch.bincount(at, minlength=n).to(sums)])

    def learn(self, sums: Float[Tensor, "n"]) -> None:
        """Take the losses of the step into the network's."""
        kept = (self.model.known_losses, self.model.known_counts)
        for own, new in zip(kept, sums.chunk(2), strict=True):
            own.mul_(self.config.decay).add_(new.to(own))


class ArdmFamily(Family):
    """Order-agnostic autoregression."""

    name = "ardm"
    summary = "order-agnostic autoregression: every masked path, and steps planned by its losses"
    Shape = MdlmShape
    Options = ArdmOptions
    protocol = Denoiser
    validated = ("roar",)

    def build(self, shape: MdlmShape) -> nn.Module:
        """Make an untrained network."""
        return ArdmModel(shape)

    def objective(self, network: ArdmModel, options: ArdmOptions) -> Objective:
        """Train by the bound over all orders."""
        return ArdmObjective(network, options)

    def estimators(self, network: ArdmModel, effort: Effort) -> Sequence[Estimator]:
        """Score by ROAR, which is the objective."""
        return [Roar(effort.replicates, effort.draws, effort.batch_size)]

    def levels(self, network: ArdmModel) -> Sequence[Level]:
        """Ask at masks only."""
        return [Masked()]


def hidden_losses(model: MdlmModel, tokens: Tokens, hidden: Mask, at: Mask) -> Float[Tensor, "b l"]:
    """Return -log p(x_i | the tokens not hidden) at the chosen positions and 0 at the others."""
    return surprise(model(Endpoints(tokens.masked_fill(hidden, MASK)), at=at), tokens, at)


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
    """ARDM's parallel sampler: a random order in T steps, planned by the network's own losses."""

    num_steps: int
    draw: Draw = Draw()
    asks: ClassVar[type] = Denoiser

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
