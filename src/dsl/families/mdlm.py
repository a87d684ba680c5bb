"""MDLM: masked diffusion over token ids, with its continuous-time bound as the objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from dsl.alpha import ScheduleName, schedule
from dsl.denoiser import Endpoints, require_tokens, wanted
from dsl.families.family import Family
from dsl.families.masking import Moments, masked
from dsl.likelihoods.effort import Effort
from dsl.likelihoods.estimate import Estimator
from dsl.likelihoods.roar import Roar
from dsl.models.config import NetworkShape
from dsl.models.llama import Llama, look_ahead, require_annealed
from dsl.models.mdlm import MDLM, TokenEmbedding
from dsl.models.network import ShapedNetwork
from dsl.streams import Streams
from dsl.teacher_forcing import Level, Masked
from dsl.training.objective import Loss, Objective, counted, surprise, tallied
from dsl.types import MASK, Mask, Noisy, Rows, Tokens


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
    """What a masked position counts: -α'/(1 - α), which is 1/t if α is linear and makes the loss a
    bound; or as much as any other, which learns faster at first, because no few positions outweigh
    the rest."""
    schedule: ScheduleName = "linear"
    """How α, the share of visible tokens, falls with the time. The bound's expectation does not
    depend on it: how noisy it is does, and what plain weights make much of."""
    power: float = 2.0
    """w of the polynomial schedule 1 - t^w."""
    anneal: float = 0.0
    """The share of a run over which llama's blocks come to see what is ahead; 0 is at once."""

    def __post_init__(self) -> None:
        schedule(self.schedule, self.power)  # refuses a power that makes none


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
        features = self.features(z)
        return self.head(features if at is None else features[at])

    def features(self, z: Noisy | Endpoints) -> Float[Tensor, "b l h"]:
        """Run the blocks on masks and tokens."""
        if not isinstance(z, Endpoints) or z.e is not None:
            raise ValueError(
                "an MDLM network knows masks and tokens only: use a masked path such as mdlm@T, "
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
    """The continuous-time bound: -log p at masked positions, weighed as their schedule says."""

    model: MdlmModel

    def __init__(self, model: MdlmModel, config: MdlmOptions) -> None:
        super().__init__()
        self.model, self.config = model, config
        self.alpha = schedule(config.schedule, config.power)
        require_annealed(model.backbone, config.anneal)

    def begin(self, progress: float) -> None:
        """Let llama's blocks see further ahead."""
        length = self.model.config.model_length
        look_ahead(self.model.backbone, progress, self.config.anneal, length)

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Mask each sequence to its own time, the times stratified over the global batch."""
        at, hidden = masked(self.alpha, tokens, streams, places, batch)
        logits = self.model(Endpoints(tokens.masked_fill(hidden, MASK)), at=hidden)
        return self.loss(logits, tokens, at, hidden)

    def loss(self, logits: Float[Tensor, "n v"], tokens: Tokens, at: Moments, hidden: Mask) -> Loss:
        """Weigh what the logits of the masked positions cost."""
        losses = surprise(logits, tokens, hidden)
        weighted = losses / at.wait
        parts = tallied(weighted) | {"masked": (losses.detach().sum(), hidden.sum())}
        if self.config.weight == "plain":
            return Loss(losses.sum(), hidden.sum().to(losses.dtype), parts)
        return Loss(weighted.sum(), counted(tokens), parts)


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

    def levels(self, network: MdlmModel) -> Sequence[Level]:
        """Ask at masks only."""
        return [Masked()]
