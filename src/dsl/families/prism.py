"""PRISM: a masked model that also learns how good each visible token is (Kim et al., 2025).

A masked text is filled at k positions by the model itself. Whether a filled token is the true one
is a free label, and binary cross-entropy on it has its optimum where the quality of token i of the
filled text y is P(x_i = y_i | y), the position being one that was filled. With k = 1 that is
P(x_i = y_i | y without i) exactly. With more, y holds other tokens of the model beside i, drawn
without sight of it, and the optimum trusts it accordingly less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dsl.denoiser import Endpoints
from dsl.families.family import Family
from dsl.families.masking import masked
from dsl.families.mdlm import MdlmModel, MdlmObjective, MdlmOptions, MdlmShape
from dsl.likelihoods.effort import Effort
from dsl.likelihoods.estimate import Estimator
from dsl.likelihoods.roar import Roar
from dsl.models.dit import LayerNorm, zeroed
from dsl.sampling.categorical import Draw
from dsl.sampling.prism import lowest
from dsl.streams import Randomness, Streams, uniform
from dsl.teacher_forcing import Level, Masked
from dsl.training.objective import Loss, Objective
from dsl.types import MASK, Mask, Rows, Tokens


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
    answers = frozenset({"prefix", "endpoints", "quality"})
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
