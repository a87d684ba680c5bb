"""DUO: uniform-state diffusion that learns from its Gaussian diffusion first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from dsl.families.family import Family
from dsl.kernel import Noise
from dsl.likelihoods.effort import Effort
from dsl.likelihoods.estimate import Estimator
from dsl.likelihoods.uniform_bound import LEAST_TIME, UniformBound, jump_nats
from dsl.models.timed import TimedModel, TimedShape
from dsl.streams import Streams
from dsl.teacher_forcing import AtTime, Level
from dsl.training.duality import latents
from dsl.training.objective import Loss, Objective, counted, stratified, tallied
from dsl.types import Logits, Tokens

TIMES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Where confidence is judged."""


@dataclass(frozen=True)
class DuoShape(TimedShape):
    """The shape of a network of uniform noise."""

    noise: Noise = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise != "uniform" or self.vocab_size < 2:
            raise ValueError(
                "DUO needs uniform noise over at least 2 tokens, "
                f"got {self.noise} noise over {self.vocab_size}"
            )


@dataclass(frozen=True)
class DuoOptions:
    """How long the curriculum lasts, and how soft its inputs are."""

    curriculum: float = 0.5
    """The share of a run in which the network is shown Gaussian latents; 0 is none."""
    temperature: float = 1e-3
    """τ: the network is shown softmax(w / τ)."""

    def __post_init__(self) -> None:
        if not 0 <= self.curriculum <= 1 or not self.temperature > 0:
            raise ValueError(
                "curriculum must lie in [0, 1] and temperature be positive, "
                f"got {self.curriculum} and {self.temperature}"
            )


class DuoModel(TimedModel):
    """A network with a time that can also be shown mixtures of tokens."""

    def at_mixture(self, weights: Logits, t: Float[Tensor, "b"]) -> Logits:
        """Return logits as `at_time` does, each position being a mixture of the tokens' rows."""
        table = self.backbone.vocab_embed.embedding[: self.vocab_size]
        return self._from_rows(weights.to(table.dtype) @ table, t)


class DuoObjective(Objective):
    """The continuous-time bound; at first on the argmax of latents of which the network sees more.

    As in the original, times below 1e-3 are left out, and with them the read-out.
    """

    model: DuoModel

    def __init__(self, model: DuoModel, config: DuoOptions) -> None:
        super().__init__()
        self.model, self.config = model, config
        self.begin(0.0)

    def begin(self, progress: float) -> None:
        """End the curriculum when its share of the run is over."""
        self.softly = progress < self.config.curriculum

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Spend each sequence on one time, the times stratified over the global batch."""
        u = stratified(streams, places, batch, tokens.device).squeeze(1)
        t = (1 - LEAST_TIME) * u + LEAST_TIME
        alpha, slope = self.model.alpha(t), self.model.alpha.slope(t)
        noisy, logits = self._asked(tokens, t, alpha, streams)
        losses = (1 - LEAST_TIME) * jump_nats(noisy, tokens, logits.float(), alpha, slope)
        parts = tallied(losses, kept=noisy == tokens, replaced=noisy != tokens)
        return Loss(losses.sum(), counted(tokens), parts)

    def _asked(
        self,
        tokens: Tokens,
        t: Float[Tensor, "b"],
        alpha: Float[Tensor, "b"],
        streams: Streams,
    ) -> tuple[Tokens, Logits]:
        """Draw x_t and ask for x̂_0, given x_t or the latent whose argmax it is."""
        v = self.model.vocab_size
        if not self.softly:
            noisy = self.model.kernel.corrupt(tokens, alpha, generator=streams)
            return noisy, self.model.at_time(noisy, t)
        w = latents(tokens, alpha, v, generator=streams)
        soft = (w / self.config.temperature).softmax(dim=-1)
        return w.argmax(dim=-1), self.model.at_mixture(soft, t)


class DuoFamily(Family):
    """Uniform-state diffusion."""

    name = "duo"
    summary = "uniform-state diffusion with a Gaussian curriculum: its own samplers and bound"
    Shape = DuoShape
    Options = DuoOptions
    answers = frozenset({"time", "replaced"})
    validated = ("duo-nelbo",)
    llama = False

    def build(self, shape: DuoShape) -> nn.Module:
        """Make an untrained network."""
        return DuoModel(shape)

    def objective(self, network: DuoModel, options: DuoOptions) -> Objective:
        """Train by the continuous-time bound."""
        return DuoObjective(network, options)

    def estimators(self, network: DuoModel, effort: Effort) -> Sequence[Estimator]:
        """Score by the continuous-time bound; one call of a replicate is its read-out."""
        r, m = effort.replicates, effort.draws
        return [UniformBound(r, m - 1, batch_size=effort.batch_size)]

    def levels(self, network: DuoModel) -> Sequence[Level]:
        """Ask at times."""
        return [AtTime(t) for t in TIMES]
