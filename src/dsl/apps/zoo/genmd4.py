"""GenMD4: masked diffusion in which each token learns when it is masked.

Token v is visible at time t with probability α_v = 1 - t^{w_v}. The bound depends on w through the
masks that are drawn, so its gradient is REINFORCE's: two draws for each text, each the other's
baseline.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dsl.apps.zoo.md4 import Md4Family, Md4Options, Md4Shape, PacedModel
from dsl.core import MASK, Mask, Streams, Tokens, uniform
from dsl.families import LEAST_TIME, Loss, Moments, Objective, counted, moments, tallied


class GenMd4Objective(Objective):
    """The bound from t = 1 down to 1e-3 and the reconstruction there, which keeps w honest.

    Without it small w would pay: their tokens would wait below 1e-3, where nobody asks.
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
        # two calls: dropout has a seed for each text, not for each of its draws
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
        mixed = (logits.softmax(dim=-1) * w).sum(dim=-1)  # no matmul: autocast would halve it
        rates[hidden] = w[clean] * (surprise - 1) + mixed
        return (1 - LEAST_TIME) * rates / at.wait

    def _reconstruction(self, tokens: Tokens, w: Float[Tensor, "v"]) -> Float[Tensor, "b l"]:
        """Return what the tokens cost that are masked at 1e-3: told by their masks alone."""
        least = torch.tensor(LEAST_TIME, dtype=torch.float64, device=w.device)
        gone = (1 - self.model.alpha(least)).clamp(min=1e-30)  # a steep schedule rounds it to 0
        log_gone = w * gone.log().float()
        return (log_gone.exp() * -log_gone.log_softmax(dim=0))[tokens]


def log_chance(chance: Float[Tensor, "b l"], hidden: Mask) -> Float[Tensor, "b"]:
    """Return log q of each sequence's mask, where positions are masked with these chances."""
    # away from both ends, because the branch of `where` that is not taken has a gradient too
    inside = chance.clamp(1e-30, 1 - 1e-6)
    return torch.where(hidden, inside.log(), (1 - inside).log()).sum(dim=1)


class GenMd4Family(Md4Family):
    """Masked diffusion with learned paces."""

    name = "genmd4"
    summary = "masked diffusion with a learned schedule for each token: timed sampler and bound"

    def build(self, shape: Md4Shape) -> nn.Module:
        """Make an untrained network."""
        return PacedModel(shape)

    def objective(self, network: Any, options: Md4Options) -> Objective:
        """Train network and paces by the bound."""
        return GenMd4Objective(network)
