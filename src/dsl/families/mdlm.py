"""MDLM: masked diffusion over token ids, with its continuous-time bound as the objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.core.alpha import Schedule, ScheduleName, schedule
from dsl.core.denoiser import Denoiser, Endpoints, require_tokens, wanted
from dsl.core.streams import Randomness, Streams, uniform
from dsl.core.types import MASK, Mask, Noisy, Rows, Tokens
from dsl.families.base import Family
from dsl.families.levels import Level, Masked
from dsl.families.objective import Loss, Objective, counted, stratified, surprise, tallied
from dsl.likelihoods.estimate import Effort, Estimator
from dsl.likelihoods.roar import Roar
from dsl.models.config import NetworkShape, ShapedNetwork
from dsl.models.llama import Llama, look_ahead, require_annealed
from dsl.models.mdlm import MDLM, TokenEmbedding

LEAST_TIME = 1e-3
"""The smallest time: starting at 0, the weighted losses would have infinite variance."""


@dataclass(frozen=True, eq=False)
class Moments:
    """A time for each sequence, and the values of the schedule there."""

    t: Float[Tensor, "b 1"]
    gone: Float[Tensor, "b 1"]
    """1 - α(t), the share of masked tokens."""
    wait: Float[Tensor, "b 1"]
    """(1 - α) / -α'. The losses of masked tokens are divided by it: the bound is the integral of
    their sum times -α'/(1 - α), for every schedule."""


def moments(
    alpha: Schedule, streams: Randomness, places: range, batch: int, device: torch.device
) -> Moments:
    """Draw a time for each sequence, the times stratified over the global batch.

    Args:
        alpha: The schedule.
        streams: Where each sequence draws from.
        places: Where the sequences stand in the global batch.
        batch: The size of the global batch.
        device: Where the sequences are.
    """
    t = (1 - LEAST_TIME) * stratified(streams, places, batch, device) + LEAST_TIME
    time = t.double()  # in single precision 1 - α would lose small values
    gone = 1 - alpha(time)
    # where gone = 0 nothing is masked, and any value works
    wait = torch.where(gone > 0, gone / -alpha.slope(time), 1.0)
    return Moments(t, gone.to(t.dtype), wait.to(t.dtype))


def masked(
    alpha: Schedule, tokens: Tokens, streams: Randomness, places: range, batch: int
) -> tuple[Moments, Mask]:
    """Draw a time for each sequence, and which of its positions are masked by then.

    Args:
        alpha: The schedule.
        tokens: Items of the global batch.
        streams: Where each item draws from.
        places: Where the items stand in the global batch: each has a stratum of times.
        batch: The size of the global batch.
    """
    at = moments(alpha, streams, places, batch, tokens.device)
    u = uniform(tokens.shape, generator=streams, device=tokens.device)
    return at, u < (1 - LEAST_TIME) * at.gone


@dataclass(frozen=True)
class MdlmShape(NetworkShape):
    """The shape of MDLM's network."""

    cond_dim: int = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cond_dim < 1:
            raise ValueError(f"cond_dim must be at least 1, got {self.cond_dim}")


@dataclass(frozen=True)
class MdlmOptions:
    """Options of MDLM's objective."""

    weight: Literal["bound", "plain"] = "bound"
    """The weight of a masked position. bound: -α'/(1 - α), which is 1/t if α is linear and makes
    the loss a bound. plain: 1, which learns faster at first, because no few positions dominate."""
    schedule: ScheduleName = "linear"
    """How α, the share of visible tokens, falls with the time. The bound's expectation does not
    depend on it: how noisy it is does, and what plain weights make much of."""
    power: float = 2.0
    """w of the polynomial schedule 1 - t^w."""
    anneal: float = 0.0
    """The share of a run over which llama attention becomes bidirectional; 0 is at once."""

    def __post_init__(self) -> None:
        schedule(self.schedule, self.power)  # raises an error for an invalid power


class MdlmModel(ShapedNetwork):
    """MDLM's network as a denoiser of endpoint states, for every masked path.

    Its tensors have the published names, so `dsl convert mdlm` reads its checkpoints.
    """

    def __init__(self, config: MdlmShape) -> None:
        super().__init__(config)
        self.config = config
        rows = config.vocab_size + 1
        self.backbone: MDLM | Llama
        if config.llama is None:
            self.backbone = MDLM(rows, cond_dim=config.cond_dim, **config.blocks)
        else:
            self.backbone = Llama(config.vocab_size, config.llama, **config.blocks)
            self.vocab_embed = TokenEmbedding(rows, config.hidden_dim)

    def forward(self, z: Noisy | Endpoints, /, *, at: Mask | None = None) -> Rows:
        """Return clean-token logits; the mask's own logit is left out, as SUBS does."""
        if not self.training:  # in training every item keeps its place: dropout is seeded by it
            z, at = wanted(z, at)
        features = self.features(z)
        return self.head(features if at is None else features[at])

    def features(self, z: Noisy | Endpoints) -> Float[Tensor, "b l h"]:
        """Run the blocks on masks and tokens."""
        if not isinstance(z, Endpoints) or z.e is not None:
            raise ValueError(
                "an MDLM network reads masks and tokens only: use a masked path such as mdlm@T, "
                "remdm-loop@T, roar or causal, and no soft evidence"
            )
        require_tokens(z.tokens, self.vocab_size, least=MASK)
        ids = z.tokens.masked_fill(z.tokens == MASK, self.vocab_size)
        table = self.vocab_embed if isinstance(self.backbone, Llama) else self.backbone.vocab_embed
        return self.backbone.features(table(ids))

    def head(self, features: Float[Tensor, "*rows h"]) -> Rows:
        """Return the logits of the given rows of features."""
        if isinstance(self.backbone, Llama):
            return self.backbone.head(features, self.vocab_embed.embedding[: self.vocab_size])
        return self.backbone.head(features)[..., : self.vocab_size]


class MdlmObjective(Objective):
    """The continuous-time bound: -log p at masked positions, weighted by the schedule."""

    model: MdlmModel

    def __init__(self, model: MdlmModel, config: MdlmOptions) -> None:
        super().__init__()
        self.model, self.config = model, config
        self.alpha = schedule(config.schedule, config.power)
        require_annealed(model.backbone, config.anneal)

    def begin(self, progress: float) -> None:
        """Widen the attention window of llama blocks."""
        length = self.model.config.model_length
        look_ahead(self.model.backbone, progress, self.config.anneal, length)

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Mask each sequence to its own time, the times stratified over the global batch."""
        at, hidden = masked(self.alpha, tokens, streams, places, batch)
        logits = self.model(Endpoints(tokens.masked_fill(hidden, MASK)), at=hidden)
        return self.loss(logits, tokens, at, hidden)

    def loss(self, logits: Float[Tensor, "n v"], tokens: Tokens, at: Moments, hidden: Mask) -> Loss:
        """Return the weighted cross-entropy of the masked positions."""
        losses = surprise(logits, tokens, hidden)
        weighted = losses / at.wait
        parts = tallied(weighted) | {"masked": (losses.detach().sum(), hidden.sum())}
        if self.config.weight == "plain":
            return Loss(losses.sum(), hidden.sum().to(losses.dtype), parts)
        return Loss(weighted.sum(), counted(tokens), parts)


class MaskedFamily(Family):
    """The base class of families whose networks predict masked tokens without a time input."""

    Shape = MdlmShape
    protocol = Denoiser
    validated: ClassVar[tuple[str, ...]] = ("roar",)

    def estimators(self, network: Any, effort: Effort) -> Sequence[Estimator]:
        """Score by ROAR: there are no states between mask and token to integrate over."""
        return [Roar(effort.replicates, effort.draws, effort.batch_size)]

    def levels(self, network: Any) -> Sequence[Level]:
        """Use masked states only."""
        return [Masked()]


class MdlmFamily(MaskedFamily):
    """Masked diffusion."""

    name = "mdlm"
    summary = "masked diffusion over token ids: every masked path"
    Options = MdlmOptions
    Network = MdlmModel
    marks = MappingProxyType({"time_conditioning": False})

    def objective(self, network: MdlmModel, options: MdlmOptions) -> Objective:
        """Train by MDLM's continuous-time bound."""
        return MdlmObjective(network, options)
