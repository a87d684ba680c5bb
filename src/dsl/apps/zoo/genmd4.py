"""GenMD4: masked diffusion with a learned schedule for each token (Shi et al., 2024).

Token v is visible at time t with probability α_v = 1 - t^{w_v}. The bound depends on w through the
drawn masks, so its gradient is REINFORCE's: two draws for each text, each the other's baseline.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dsl.apps.zoo.kernel import Kernel, one_hot
from dsl.apps.zoo.md4 import MaskedBound, Md4Family, Md4Options
from dsl.apps.zoo.timed import TimedModel, TimedShape
from dsl.core import MASK, Logits, Mask, Randomness, Streams, Tokens, uniform
from dsl.families import LEAST_TIME, Loss, Moments, Objective, counted, moments, tallied
from dsl.likelihoods import Effort, Estimator


@dataclass(frozen=True, eq=False)
class PacedKernel(Kernel):
    """Absorbing noise in which token v stays with probability α_v = 1 - (1 - α)^{w_v}.

    With the linear schedule this is GenMD4's 1 - t^{w_v}: tokens with small w are masked first and
    revealed last.
    """

    pace: Float[Tensor, "v"]
    """w, positive."""

    def corrupt(
        self, tokens: Tokens, alpha: Float[Tensor, "b"], *, generator: Randomness = None
    ) -> Tokens:
        """Draw x_t given x_0, with one α for each sequence."""
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
        """Return q(x_s | x_t, x̂_0) for s < t.

        x̂_0 is the clean token given *all* positions, its own mask included: a mask is evidence for
        tokens that are masked early.
        """
        # (1 - α_v(s)) / (1 - α_v(t)), the share of masks at t that are masks at s
        share = ((1 - alpha_s) / (1 - alpha_t)).view(-1, 1, 1) ** self.pace.to(clean)
        still = (share * clean).sum(dim=-1, keepdim=True)
        hidden = torch.cat([(1 - share) * clean, still], dim=-1)
        masked = (noisy == MASK).unsqueeze(-1)
        return torch.where(masked, hidden, one_hot(noisy.clamp(min=0), self.states, clean.dtype))


class PacedModel(TimedModel):
    """A timed network with a learned pace for each token of its vocabulary."""

    def __init__(self, config: TimedShape) -> None:
        super().__init__(config)
        one = math.log(math.e - 1)  # softplus(one) = 1: training starts with MD4's process
        self.raw_pace = nn.Parameter(torch.full((config.vocab_size,), one))

    @property
    def pace(self) -> Float[Tensor, "v"]:
        """The learned w of every token."""
        return nn.functional.softplus(self.raw_pace.float())

    @property
    def kernel(self) -> Kernel:
        """The transition kernel of the process."""
        return PacedKernel("absorbing", self.vocab_size, self.pace.detach())


class GenMd4Objective(Objective):
    """The bound from t = 1 down to 1e-3, and the reconstruction there.

    Without the reconstruction small w would be free: their tokens would be masked below 1e-3.
    """

    model: PacedModel

    def __init__(self, model: PacedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Mask each sequence twice to its own time, the times stratified over the global batch."""
        w, device = self.model.pace, tokens.device
        at = moments(self.model.alpha, streams, places, batch, device)
        chance = at.gone ** w[tokens]
        u = uniform((*tokens.shape, 2), generator=streams, device=device)
        one, two = (u < chance.detach().unsqueeze(-1)).unbind(dim=-1)
        # two calls: dropout has one seed for each text, not for each draw
        first, second = self._rates(tokens, one, at, w), self._rates(tokens, two, at, w)
        bound = (first + second) / 2 + self._reconstruction(tokens, w)
        baselined = (first - second).detach().sum(dim=1) / 2
        score = baselined * (log_chance(chance, one) - log_chance(chance, two))
        parts = tallied(bound) | {"pace": (w.detach()[tokens].sum(), counted(tokens))}
        return Loss(bound.sum() + (score - score.detach()).sum(), counted(tokens), parts)

    def _rates(
        self, tokens: Tokens, hidden: Mask, at: Moments, w: Float[Tensor, "v"]
    ) -> Float[Tensor, "b l"]:
        """Return (w_i (-log μ_i(x_i)) + Σ_v w_v μ_i(v) - w_i) / t at masked positions."""
        logits = self.model.at_time(tokens.masked_fill(hidden, MASK), at.t.squeeze(1))
        logits, clean = logits[hidden].float(), tokens[hidden]
        surprise = nn.functional.cross_entropy(logits, clean, reduction="none")
        rates = torch.zeros(tokens.shape, device=tokens.device)
        mixed = (logits.softmax(dim=-1) * w).sum(dim=-1)  # autocast would round a matmul
        rates[hidden] = w[clean] * (surprise - 1) + mixed
        return (1 - LEAST_TIME) * rates / at.wait

    def _reconstruction(self, tokens: Tokens, w: Float[Tensor, "v"]) -> Float[Tensor, "b l"]:
        """Return the expected cost of tokens masked at 1e-3, predicted from their masks alone."""
        least = torch.tensor(LEAST_TIME, dtype=torch.float64, device=w.device)
        gone = (1 - self.model.alpha(least)).clamp(min=1e-30)  # 0 for a steep schedule
        log_gone = w * gone.log().float()
        return (log_gone.exp() * -log_gone.log_softmax(dim=0))[tokens]


def log_chance(chance: Float[Tensor, "b l"], hidden: Mask) -> Float[Tensor, "b"]:
    """Return the log-probability of each sequence's mask, given that of each position."""
    # away from 0 and 1, because the unused branch of `where` has a gradient too
    inside = chance.clamp(1e-30, 1 - 1e-6)
    return torch.where(hidden, inside.log(), (1 - inside).log()).sum(dim=1)


@dataclass(frozen=True)
class PacedBound(MaskedBound):
    """MD4's bound with the learned pace of every token."""

    def pace(self, kernel: Kernel) -> Float[Tensor, "v"]:
        """Return w of every token."""
        assert isinstance(kernel, PacedKernel)
        return kernel.pace


class GenMd4Family(Md4Family):
    """Masked diffusion with learned paces."""

    name = "genmd4"
    summary = "masked diffusion with a learned schedule for each token: timed sampler and bound"
    Network = PacedModel

    def objective(self, network: TimedModel, options: Md4Options) -> Objective:
        """Train network and paces by the bound."""
        assert isinstance(network, PacedModel)
        return GenMd4Objective(network)

    def estimators(self, network: TimedModel, effort: Effort) -> Sequence[Estimator]:
        """Score by the bound."""
        return [PacedBound(effort.replicates, effort.draws, effort.batch_size)]
