"""MDLM: masked diffusion over token ids, with its continuous-time bound as the objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dsl.denoiser import Endpoints, require_tokens, wanted
from dsl.families.family import Family
from dsl.likelihoods.effort import Effort
from dsl.likelihoods.estimate import Estimator
from dsl.likelihoods.roar import Roar
from dsl.models.config import NetworkShape
from dsl.models.llama import Llama, look_ahead, require_annealed
from dsl.models.mdlm import MDLM, TokenEmbedding
from dsl.models.network import ShapedNetwork
from dsl.streams import Streams, uniform
from dsl.teacher_forcing import Level, Masked
from dsl.training.objective import Loss, Objective, counted, tallied
from dsl.types import MASK, Mask, Noisy, Rows, Tokens

LEAST_TIME = 1e-3


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
    """What MDLM's objective leaves open."""

    weight: Literal["bound", "plain"] = "bound"
    """What a masked position counts: 1/t, which makes the loss a bound; or as much as any other,
    which learns faster at first, because no few positions outweigh the rest."""
    anneal: float = 0.0
    """The share of a run over which llama's blocks come to see what is ahead; 0 is at once."""


class MdlmModel(ShapedNetwork):
    """MDLM's network as a denoiser of endpoint states: every masked path serves it.

    Its tensors have the published names, so `dsl convert mdlm` reads what it writes.
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
        if not isinstance(z, Endpoints) or z.e is not None:
            raise ValueError(
                "an MDLM network knows masks and tokens only: use a masked path such as mdlm@T, "
                "remdm-loop@T, roar or causal, and no soft evidence"
            )
        require_tokens(z.tokens, self.vocab_size, least=MASK)
        mask = self.config.vocab_size
        ids = z.tokens.masked_fill(z.tokens == MASK, mask)
        if isinstance(self.backbone, Llama):
            features = self.backbone.features(self.vocab_embed(ids))
            table = self.vocab_embed.embedding[:mask]
            return self.backbone.head(features if at is None else features[at], table)
        features = self.backbone.features(self.backbone.vocab_embed(ids))
        logits: Tensor = self.backbone.head(features if at is None else features[at])
        return logits[..., :mask]


class MdlmObjective(Objective):
    """The continuous-time bound with the log-linear schedule: -log p / t at masked positions."""

    model: MdlmModel

    def __init__(self, model: MdlmModel, config: MdlmOptions) -> None:
        super().__init__()
        self.model, self.config = model, config
        require_annealed(model.backbone, config.anneal)

    def begin(self, progress: float) -> None:
        """Let llama's blocks see further ahead."""
        length = self.model.config.model_length
        look_ahead(self.model.backbone, progress, self.config.anneal, length)

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Mask each sequence to its own time, the times stratified over the global batch."""
        t, hidden = masking(tokens, streams, places, batch)
        logits = self.model(Endpoints(tokens.masked_fill(hidden, MASK)), at=hidden)
        losses = torch.zeros(tokens.shape, device=tokens.device)
        losses[hidden] = nn.functional.cross_entropy(
            logits.float(), tokens[hidden], reduction="none"
        )
        weighted = losses / t
        parts = tallied(weighted) | {"masked": (losses.detach().sum(), hidden.sum())}
        if self.config.weight == "plain":
            return Loss(losses.sum(), hidden.sum().to(losses.dtype), parts)
        return Loss(weighted.sum(), counted(tokens), parts)


def masking(
    tokens: Tokens, streams: Streams, places: range, batch: int
) -> tuple[Float[Tensor, "b 1"], Mask]:
    """Draw a time for each sequence, and which of its positions are masked by then.

    Args:
        tokens: Items of the global batch.
        streams: Where each item draws from.
        places: Where the items stand in the global batch: each has a stratum of times.
        batch: The size of the global batch.
    """
    b, length = tokens.shape
    device = tokens.device
    u = uniform((b, 1), generator=streams, device=device)
    stratum = torch.tensor(list(places), device=device).unsqueeze(1)
    t = (1 - LEAST_TIME) * ((u + stratum) / batch) + LEAST_TIME
    move = (1 - LEAST_TIME) * t
    return t, uniform((b, length), generator=streams, device=device) < move


class MdlmFamily(Family):
    """Masked diffusion."""

    name = "mdlm"
    summary = "masked diffusion over token ids: every masked path"
    Shape = MdlmShape
    Options = MdlmOptions
    answers = frozenset({"prefix", "endpoints"})
    validated = ("roar",)
    marks = MappingProxyType({"time_conditioning": False})

    def build(self, shape: MdlmShape) -> nn.Module:
        """Make an untrained network."""
        return MdlmModel(shape)

    def objective(self, network: MdlmModel, options: MdlmOptions) -> Objective:
        """Train by MDLM's continuous-time bound."""
        return MdlmObjective(network, options)

    def estimators(self, network: MdlmModel, effort: Effort) -> Sequence[Estimator]:
        """Score by ROAR: there are no states between mask and token to integrate over."""
        return [Roar(effort.replicates, effort.draws, effort.batch_size)]

    def levels(self, network: MdlmModel, snrs: Sequence[float] = ()) -> Sequence[Level]:
        """Ask at masks only."""
        if snrs:
            raise ValueError("an MDLM network has no SNR to be asked at: leave --snr out")
        return [Masked()]
