"""PRISM: a masked model that also learns how good each visible token is (Kim et al., 2025).

The model fills k masked positions itself, and learns to predict which of these tokens are right.
The optimum of this binary cross-entropy is P(x_i = y_i | y, i was filled) for token i of the filled
text y. With k = 1 it equals P(x_i = y_i | y without i). With k > 1, y has other filled tokens that
were drawn independently of token i, and the optimal quality is lower.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from dsl.core import (
    MASK,
    Denoiser,
    Endpoints,
    Mask,
    Randomness,
    Rated,
    RatedAtOnce,
    Rows,
    Streams,
    Tokens,
    require_rated,
    uniform,
)
from dsl.families import (
    Loss,
    MaskedFamily,
    MdlmModel,
    MdlmObjective,
    MdlmOptions,
    MdlmShape,
    Objective,
    masked,
)
from dsl.models import LayerNorm, zeroed
from dsl.samplers import Chain, Draw, Sampler, State, ask, require_steps


@dataclass(frozen=True)
class Prism:
    """PRISM: reveal at random, and in the second half remask the tokens rated worst.

    Every step reveals the same number of tokens, plus the number that it remasks.

    The number to remask is drawn as in ReMDM-cap, with probability σ = min(η, σ_max) for each
    visible token. The tokens with the lowest quality in that step are remasked.
    """

    num_steps: int
    draw: Draw = Draw()
    eta: float = 0.01
    """The remasking probability; 0 reveals in random order in T parts."""
    on: float = 0.5
    """The share of steps without remasking at the start."""
    asks: ClassVar[type] = Rated

    def __post_init__(self) -> None:
        require_steps(self.num_steps)
        if not (0 <= self.eta <= 1 and 0 <= self.on <= 1):
            raise ValueError(f"eta and on must lie in [0, 1], got {self.eta} and {self.on}")

    def steps(
        self, denoiser: Denoiser, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Yield the state after every step; its memory is the initial number of masks."""
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
        """Make one step that leaves `left` tokens masked."""
        luck, u = _uniform(state.tokens, generator), _uniform(state.tokens, generator)
        visible = state.free & ~state.masked
        sigma = (left / visible.sum(dim=1).clamp(min=1)).clamp(max=eta).unsqueeze(1)
        count = (visible & (luck < sigma)).sum(dim=1).minimum(left)
        shown = lowest(luck, state.masked, state.masked.sum(dim=1) - left + count)
        logits, quality, state = rate(denoiser, state, shown, count > 0)
        worst = lowest(quality, visible, count, ties=luck)
        return state.commit(shown, *self.draw(logits, u[shown])).remask(worst)


@dataclass(frozen=True)
class PrismLoop:
    """Correct a text with a fixed share of masks: fill them, mask the worst tokens, repeat.

    One network call gives the logits of masks and the quality of tokens. The last step only fills.
    """

    num_steps: int
    draw: Draw = Draw()
    share: float = 0.1
    """The share of free tokens that is masked, rounded up."""
    asks: ClassVar[type] = Rated

    def __post_init__(self) -> None:
        require_steps(self.num_steps)
        if not 0 <= self.share <= 0.5:  # above 0.5 there are not enough other tokens to mask
            raise ValueError(f"share must lie in [0, 0.5], got {self.share}")

    def steps(
        self, denoiser: Denoiser, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Yield the state after every step."""
        rated = require_rated(denoiser)
        state = start
        count = (self.share * state.free.sum(dim=1)).ceil().long()
        for k in range(start.step, self.num_steps):
            luck, u = _uniform(state.tokens, generator), _uniform(state.tokens, generator)
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
    """Return the logits of the chosen rows and the token quality of the chosen sequences.

    Counts one call per sequence if the network returns both at once, else two.
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
    """Choose the `count` positions with the lowest scores; equal ones by their tie values."""
    score = score.masked_fill(~among, torch.inf)
    first = (score if ties is None else ties).argsort(dim=1, stable=True)
    order = first.gather(1, score.gather(1, first).argsort(dim=1, stable=True))
    return among & (order.argsort(dim=1) < count.unsqueeze(1))


def _uniform(tokens: Tokens, generator: Randomness) -> Float[Tensor, "b l"]:
    return uniform(tokens.shape, generator=generator, dtype=torch.float64, device=tokens.device)


@dataclass(frozen=True)
class PrismOptions:
    """Options of PRISM's objective; the defaults are those of the official OpenWebText script."""

    masked: float = 0.5
    """λ, the weight of the masked loss relative to the quality loss."""
    fill: int = 8
    """k, the number of masked tokens that the model fills in."""
    draws: int = 1
    """How often each masked text is filled; each costs a forward pass. The script uses 4."""
    top_p: float = 0.9
    """Top-p of the filled tokens."""
    anneal: float = 0.0
    """The share of a run over which llama attention becomes bidirectional; 0 is at once."""

    def __post_init__(self) -> None:
        if self.masked < 0 or self.fill < 1 or self.draws < 1:
            raise ValueError(
                "masked must be at least 0, fill and draws at least 1, "
                f"got {self.masked:g}, {self.fill} and {self.draws}"
            )
        Draw(top_p=self.top_p)  # raises for an invalid top_p


class PrismModel(MdlmModel):
    """MDLM's network, tensor for tensor, and a quality head for visible tokens.

    The head is a norm and one row of weights that start at zero: untrained, every quality is 1/2.
    """

    def __init__(self, config: MdlmShape) -> None:
        super().__init__(config)
        self.quality_head = nn.Sequential(
            LayerNorm(config.hidden_dim), zeroed(nn.Linear(config.hidden_dim, 1))
        )

    def quality(self, z: Endpoints) -> Float[Tensor, "b l"]:
        """Return the probability that each token is right; undefined at masks."""
        return self.quality_logits(z).sigmoid()

    def quality_logits(self, z: Endpoints) -> Float[Tensor, "b l"]:
        """Return the log-odds that each token is right."""
        return self._rate(self.features(z))

    def rated(self, z: Endpoints, *, at: Mask) -> tuple[Rows, Float[Tensor, "b l"]]:
        """Return the logits at `at` and the quality of every token from one forward pass."""
        features = self.features(z)
        return self.head(features[at]), self._rate(features).sigmoid()

    def _rate(self, features: Float[Tensor, "b l h"]) -> Float[Tensor, "b l"]:
        logits: Tensor = self.quality_head(features)
        return logits.squeeze(-1).float()


class PrismObjective(MdlmObjective):
    """The binary cross-entropy of the quality, plus λ times the masked loss."""

    model: PrismModel

    def __init__(self, model: PrismModel, options: PrismOptions) -> None:
        super().__init__(model, MdlmOptions(anneal=options.anneal))
        self.options = options

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Mask as MDLM does; the logits of the masked loss also fill in the tokens to rate."""
        at, hidden = masked(self.alpha, tokens, streams, places, batch)
        shown = tokens.masked_fill(hidden, MASK)
        logits = self.model(Endpoints(shown), at=hidden)
        own = self.loss(logits, tokens, at, hidden)
        judged = [self.judge(tokens, shown, logits, streams) for _ in range(self.options.draws)]
        costs, right, filled = (torch.stack(part) for part in zip(*judged, strict=True))
        # A mean for each text, which may have fewer than k masks: a mean over the batch would
        # depend on how the batch is cut.
        quality = (costs.sum(dim=2) / filled.sum(dim=2).clamp(min=1)).mean(dim=0)
        total = self.options.masked * own.sum + tokens.shape[1] * quality.sum()
        parts = {
            "quality": (costs.detach().sum(), filled.sum()),
            "right": (right.sum(), filled.sum()),
        }
        return Loss(total, own.count, own.parts | parts)

    def judge(
        self, tokens: Tokens, shown: Tokens, logits: Float[Tensor, "n v"], generator: Randomness
    ) -> tuple[Float[Tensor, "b l"], Mask, Mask]:
        """Fill in tokens; return their quality losses, which are right, and which were filled."""
        y, filled = self.fill(shown, logits.detach(), generator)
        right = filled & (y == tokens)
        rates = self.model.quality_logits(Endpoints(y))
        costs = nn.functional.binary_cross_entropy_with_logits(
            rates, right.to(rates.dtype), reduction="none"
        )
        return costs * filled, right, filled

    def fill(
        self, shown: Tokens, logits: Float[Tensor, "n v"], generator: Randomness
    ) -> tuple[Tokens, Mask]:
        """Fill k random masks from the logits of all masks."""
        hidden = shown == MASK
        luck, u = _uniform(shown, generator), _uniform(shown, generator)
        filled = lowest(luck, hidden, torch.full_like(shown[:, 0], self.options.fill))
        drawn, _ = Draw(top_p=self.options.top_p)(logits[filled[hidden]], u[filled])
        return shown.masked_scatter(filled, drawn), filled


class PrismFamily(MaskedFamily):
    """Masked diffusion that rates its own tokens."""

    name = "prism"
    summary = "masked diffusion that rates its tokens: every masked path, and its own"
    Options = PrismOptions
    Network = PrismModel
    protocol = Rated
    fresh = ("quality_head.",)

    def objective(self, network: PrismModel, options: PrismOptions) -> Objective:
        """Train by PRISM's loss."""
        return PrismObjective(network, options)


def prism_loop(
    num_steps: int,
    *,
    eta: float = 0.01,
    on: float = 0.5,
    loop: float = 0.5,
    share: float = 0.1,
    draw: Draw = Draw(),
) -> Sampler:
    """PRISM, and a correcting loop for the last share `loop` of the num_steps.

    The loop masks and refills the worst `share` of the tokens; 0.1 is ReMDM-loop's 1 - α_on.
    """
    if not 0 <= loop < 1:
        raise ValueError(f"loop must lie in [0, 1), got {loop}")
    looped = int(loop * num_steps)
    first = Prism(num_steps - looped, draw, eta, on)
    return Chain((first, PrismLoop(looped, draw, share))) if looped else first
