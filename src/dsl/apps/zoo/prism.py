"""PRISM: a masked model that also learns how good each visible token is (Kim et al., 2025).

A masked text is filled at k positions by the model itself. Whether a filled token is the true one
is a free label, and binary cross-entropy on it has its optimum where the quality of token i of the
filled text y is P(x_i = y_i | y), the position being one that was filled. With k = 1 that is
P(x_i = y_i | y without i) exactly. With more, y holds other tokens of the model beside i, drawn
without sight of it, and the optimum trusts it accordingly less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    Family,
    Level,
    Loss,
    Masked,
    MdlmModel,
    MdlmObjective,
    MdlmOptions,
    MdlmShape,
    Objective,
    masked,
)
from dsl.likelihoods import Effort, Estimator, Roar
from dsl.models import LayerNorm, zeroed
from dsl.samplers import Chain, Draw, Sampler, State, ask, require_steps


@dataclass(frozen=True)
class Prism:
    """PRISM: reveal at random, and in the second half remask the tokens rated worst.

    Every step reveals equally many tokens, plus as many as were remasked.

    From some step on, each visible token gives a step the chance σ = min(η, σ_max) to take one
    back, as in ReMDM-cap; the tokens that go are those rated worst by the forward of that step.
    """

    num_steps: int
    draw: Draw = Draw()
    eta: float = 0.01
    """At 0 nothing is taken back: a random order in T parts."""
    on: float = 0.5
    """The share of the steps before tokens are taken back."""
    asks: ClassVar[type] = Rated

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
    asks: ClassVar[type] = Rated

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


@dataclass(frozen=True)
class PrismOptions:
    """What PRISM's objective leaves open; constants of the official script for OpenWebText."""

    masked: float = 0.5
    """λ: what the masked loss counts beside that of the quality."""
    fill: int = 8
    """k: how many masked tokens the model fills in, to be judged."""
    draws: int = 1
    """How often each masked text is filled anew; each is a forward more. The script takes 4."""
    top_p: float = 0.9
    """The mass of the tokens that are filled in."""
    anneal: float = 0.0
    """The share of a run over which llama's blocks come to see what is ahead; 0 is at once."""

    def __post_init__(self) -> None:
        if self.masked < 0 or self.fill < 1 or self.draws < 1:
            raise ValueError(
                "masked must be at least 0, fill and draws at least 1, "
                f"got {self.masked:g}, {self.fill} and {self.draws}"
            )
        Draw(top_p=self.top_p)  # refuses a mass that is none


class PrismModel(MdlmModel):
    """MDLM's network, tensor for tensor, and a head that rates visible tokens.

    The head is a norm and one row of weights, at first zero: untrained, every quality is 1/2.
    """

    def __init__(self, config: MdlmShape) -> None:
        super().__init__(config)
        self.quality_head = nn.Sequential(
            LayerNorm(config.hidden_dim), zeroed(nn.Linear(config.hidden_dim, 1))
        )

    def quality(self, z: Endpoints) -> Float[Tensor, "b l"]:
        """Return the probability that each token is right; at a mask it means nothing."""
        return self.quality_logits(z).sigmoid()

    def quality_logits(self, z: Endpoints) -> Float[Tensor, "b l"]:
        """Return the log-odds that each token is right."""
        return self._rate(self.features(z))

    def rated(self, z: Endpoints, *, at: Mask) -> tuple[Rows, Float[Tensor, "b l"]]:
        """Return the logits that `at` chooses and the quality of every token, by one forward."""
        features = self.features(z)
        return self.head(features[at]), self._rate(features).sigmoid()

    def _rate(self, features: Float[Tensor, "b l h"]) -> Float[Tensor, "b l"]:
        logits: Tensor = self.quality_head(features)
        return logits.squeeze(-1).float()


class PrismObjective(MdlmObjective):
    """The cross-entropy of the labels right and wrong, and λ times the masked loss."""

    model: PrismModel

    def __init__(self, model: PrismModel, options: PrismOptions) -> None:
        super().__init__(model, MdlmOptions(anneal=options.anneal))
        self.options = options

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Mask as MDLM does; the logits that pay for it fill in what is then judged."""
        at, hidden = masked(self.alpha, tokens, streams, places, batch)
        shown = tokens.masked_fill(hidden, MASK)
        logits = self.model(Endpoints(shown), at=hidden)
        own = self.loss(logits, tokens, at, hidden)
        judged = [self.judge(tokens, shown, logits, streams) for _ in range(self.options.draws)]
        costs, right, filled = (torch.stack(part) for part in zip(*judged, strict=True))
        # A mean for each text, of which fewer than k may be masked: a mean over the batch would
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
        """Fill in tokens; return what their quality costs, which are right, and which they are."""
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
        """Draw k masked tokens, chosen at random, from the logits of all masked ones."""
        hidden = shown == MASK
        luck, u = (
            uniform(shown.shape, generator=generator, dtype=torch.float64, device=shown.device)
            for _ in range(2)
        )
        filled = lowest(luck, hidden, torch.full_like(shown[:, 0], self.options.fill))
        drawn, _ = Draw(top_p=self.options.top_p)(logits[filled[hidden]], u[filled])
        return shown.masked_scatter(filled, drawn), filled


class PrismFamily(Family):
    """Masked diffusion that rates its own tokens."""

    name = "prism"
    summary = "masked diffusion that rates its tokens: every masked path, and its own"
    Shape = MdlmShape
    Options = PrismOptions
    protocol = Rated
    validated = ("roar",)
    fresh = ("quality_head.",)

    def build(self, shape: MdlmShape) -> nn.Module:
        """Make an untrained network."""
        return PrismModel(shape)

    def objective(self, network: PrismModel, options: PrismOptions) -> Objective:
        """Train by PRISM's loss."""
        return PrismObjective(network, options)

    def estimators(self, network: PrismModel, effort: Effort) -> Sequence[Estimator]:
        """Score by ROAR, as a masked model without a rating."""
        return [Roar(effort.replicates, effort.draws, effort.batch_size)]

    def levels(self, network: PrismModel) -> Sequence[Level]:
        """Ask at masks only."""
        return [Masked()]


def prism_loop(
    num_steps: int,
    *,
    eta: float = 0.01,
    on: float = 0.5,
    loop: float = 0.5,
    share: float = 0.1,
    draw: Draw = Draw(),
) -> Sampler:
    """PRISM in all but the share `loop` of the num_steps, in which the text is mended.

    Of the text, the share that is rated worst is masked and filled; 0.1 is ReMDM-loop's 1 - α_on.
    """
    if not 0 <= loop < 1:
        raise ValueError(f"loop must lie in [0, 1), got {loop}")
    mending = int(loop * num_steps)
    walk = Prism(num_steps - mending, draw, eta, on)
    return Chain((walk, PrismLoop(mending, draw, share))) if mending else walk
