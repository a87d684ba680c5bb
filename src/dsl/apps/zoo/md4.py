"""MD4: masked diffusion with a time input and a schedule of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from dsl.apps.zoo.kernel import Kernel, one_hot
from dsl.apps.zoo.protocols import AtTime, Timed
from dsl.apps.zoo.timed import TimedModel, TimedShape
from dsl.core import MASK, Logits, Mask, Randomness, Streams, Tokens, time_of, uniform
from dsl.families import (
    LEAST_TIME,
    Family,
    Level,
    Loss,
    Objective,
    counted,
    moments,
    surprise,
    tallied,
)
from dsl.likelihoods import (
    Effort,
    Estimate,
    Estimator,
    Kind,
    cross_entropy,
    require_draws,
    require_logits,
)


@dataclass(frozen=True, eq=False)
class PacedKernel(Kernel):
    """Absorbing noise in which token v is left alone with probability α_v = 1 - (1 - α)^{w_v}.

    With the linear schedule that is GenMD4's 1 - t^{w_v}: tokens of small w are forgotten first,
    and so written last.
    """

    pace: Float[Tensor, "v"]
    """w, positive."""

    def corrupt(
        self, tokens: Tokens, alpha: Float[Tensor, "b"], *, generator: Randomness = None
    ) -> Tokens:
        """Draw x_t given x_0, a sequence at its own α."""
        gone = (1 - alpha).unsqueeze(1) ** self.pace.to(alpha)[tokens]
        u = uniform(tokens.shape, generator=generator, device=tokens.device)
        return tokens.masked_fill(u >= 1 - gone, MASK)

    def log_likelihood(self, noisy: Tokens, alpha: Float[Tensor, "b"]) -> Logits:
        """Return log q(x_t | x_0 = v) of every token v."""
        gone = (1 - alpha).view(-1, 1, 1) ** self.pace.to(alpha)
        own = one_hot(noisy.clamp(min=0), self.vocab_size, alpha.dtype)
        return torch.where((noisy == MASK).unsqueeze(-1), gone, (1 - gone) * own).log()

    def posterior(
        self,
        noisy: Tokens,
        clean: Float[Tensor, "b l v"],
        alpha_t: Float[Tensor, "b"],
        alpha_s: Float[Tensor, "b"],
    ) -> Float[Tensor, "b l states"]:
        """Return q(x_s | x_t, x̂_0) for s < t: a mask stays one if its token would have.

        x̂_0 is what *all* positions tell of the clean token, its own mask included: a mask says
        that the token is one of those that are forgotten early.
        """
        # (1 - α_v(s)) / (1 - α_v(t)), how many of the masks of t are masks at s
        share = ((1 - alpha_s) / (1 - alpha_t)).view(-1, 1, 1) ** self.pace.to(clean)
        still = (share * clean).sum(dim=-1, keepdim=True)
        hidden = torch.cat([(1 - share) * clean, still], dim=-1)
        masked = (noisy == MASK).unsqueeze(-1)
        return torch.where(masked, hidden, one_hot(noisy.clamp(min=0), self.states, clean.dtype))


class PacedModel(TimedModel):
    """A network that is told the time, and a pace for each token of its vocabulary.

    The time is needed: what a mask says of its token depends on it.
    """

    def __init__(self, config: TimedShape) -> None:
        super().__init__(config)
        one = math.log(math.e - 1)  # softplus of it is 1: MD4's process, to begin with
        self.raw_pace = nn.Parameter(torch.full((config.vocab_size,), one))

    @property
    def pace(self) -> Float[Tensor, "v"]:
        """The learned w of every token."""
        return nn.functional.softplus(self.raw_pace.float())

    @property
    def kernel(self) -> Kernel:
        """What becomes of a token, at its pace."""
        return PacedKernel("absorbing", self.vocab_size, self.pace.detach())


def paces(kernel: Kernel) -> Float[Tensor, "v"]:
    """Return w of every token: 1 where the kernel makes no difference between them."""
    if isinstance(kernel, PacedKernel):
        return kernel.pace
    return torch.ones(kernel.vocab_size)


@dataclass(frozen=True)
class MaskedBound:
    """The integral at moments when some token of the text is being masked.

    Drawn at uniform times, 1/g has no finite variance. Here a random token i is masked at
    g = u^{1/w_i}, the others if they were before, and the masked set S counts l / Σ_S w: the same
    integral with bounded weights. If all w are equal, |S| - 1 is uniform, as ROAR's sets are.
    """

    replicates: int = 8
    draws: int = 8
    """Moments in a replicate, u in each of as many strata."""
    batch_size: int = 256
    label: ClassVar[str] = "nelbo"
    kind: ClassVar[Kind] = "bound"

    def __post_init__(self) -> None:
        require_draws(self.replicates, self.draws)

    @torch.no_grad()
    def __call__(
        self, denoiser: Timed, tokens: Tokens, *, generator: Randomness = None
    ) -> Estimate:
        """Estimate the bound of every sequence."""
        if denoiser.kernel.noise != "absorbing":
            raise ValueError(
                "the masked bound is that of a process of masks: expected absorbing noise, "
                f"got {denoiser.kernel.noise}"
            )
        b, length = tokens.shape
        r, m = self.replicates, self.draws
        w = paces(denoiser.kernel).to(tokens.device, torch.float64)
        gone, hidden = self._moments(tokens, w, generator)
        many = tokens.view(b, 1, 1, length).expand(b, r, m, length).reshape(-1, length)
        t, hidden = time_of(denoiser.alpha, gone).flatten(), hidden.reshape(-1, length)
        parts = zip(*(x.split(self.batch_size) for x in (many, hidden, t)), strict=True)
        found = [rates(denoiser, rows, at, times, w) for rows, at, times in parts]
        weight = length / (w[many] * hidden).sum(dim=1, keepdim=True)
        return Estimate((weight * torch.cat(found)).reshape(b, r, m, length).mean(dim=2))

    def _moments(
        self, tokens: Tokens, w: Float[Tensor, "v"], generator: Randomness
    ) -> tuple[Float[Tensor, "b r m"], Bool[Tensor, "b r m l"]]:
        """Draw g, and the positions that are masked by then, one of which is just being masked."""
        b, length = tokens.shape
        shape = (b, self.replicates, self.draws)
        device = tokens.device
        draw = partial(uniform, generator=generator, dtype=torch.float64, device=device)
        u = (torch.arange(self.draws, device=device) + draw(shape)) / self.draws
        first = (draw(shape) * length).long()
        own = w[tokens].view(b, 1, 1, length)
        gone = u ** (1 / w[tokens.gather(1, first.flatten(1))].view(shape))
        hidden = draw((*shape, length)) < gone.unsqueeze(-1) ** own
        return gone, hidden.scatter(-1, first.unsqueeze(-1), True)


def rates(
    denoiser: Timed, tokens: Tokens, at: Mask, t: Float[Tensor, "b"], w: Float[Tensor, "v"]
) -> Float[Tensor, "b l"]:
    """Return w_i (-log μ_i(x_i)) + Σ_v w_v μ_i(v) - w_i at masked positions, 0 at the others."""
    logits = denoiser.at_time(tokens.masked_fill(at, MASK), t)[at].double()
    require_logits(logits)
    own = w[tokens[at]]
    found = torch.zeros(tokens.shape, dtype=torch.float64, device=tokens.device)
    found[at] = own * cross_entropy(logits, tokens[at]) + logits.softmax(dim=-1) @ w - own
    return found


TIMES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Times at which calibration is measured."""


@dataclass(frozen=True)
class Md4Shape(TimedShape):
    """The shape of a masked network with a time; its schedule is part of it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise != "absorbing":
            raise ValueError(f"masked diffusion has absorbing noise, got {self.noise}")


@dataclass(frozen=True)
class Md4Options:
    """MD4's objective has no options."""


class Md4Objective(Objective):
    """The continuous-time bound from t = 1 down to 1e-3.

    The reconstruction term below depends on no weight and is left out.
    """

    model: TimedModel

    def __init__(self, model: TimedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Mask each sequence to its own time, the times stratified over the global batch."""
        device = tokens.device
        at = moments(self.model.alpha, streams, places, batch, device)
        hidden = uniform(tokens.shape, generator=streams, device=device) < at.gone
        logits = self.model.at_time(tokens.masked_fill(hidden, MASK), at.t.squeeze(1))
        losses = surprise(logits[hidden], tokens, hidden)
        weighted = (1 - LEAST_TIME) * losses / at.wait
        parts = tallied(weighted) | {"masked": (losses.detach().sum(), hidden.sum())}
        return Loss(weighted.sum(), counted(tokens), parts)


class Md4Family(Family):
    """Masked diffusion with a time."""

    name = "md4"
    summary = "masked diffusion that is told the time: its own sampler and bound"
    Shape = Md4Shape
    Options = Md4Options
    protocol = Timed
    validated = ("nelbo",)
    llama = False

    def build(self, shape: Md4Shape) -> nn.Module:
        """Make an untrained network."""
        return TimedModel(shape)

    def objective(self, network: TimedModel, options: Md4Options) -> Objective:
        """Train by the bound."""
        return Md4Objective(network)

    def estimators(self, network: TimedModel, effort: Effort) -> Sequence[Estimator]:
        """Score by the bound."""
        return [MaskedBound(effort.replicates, effort.draws, effort.batch_size)]

    def levels(self, network: TimedModel) -> Sequence[Level]:
        """Ask at times."""
        return [AtTime(t) for t in TIMES]
