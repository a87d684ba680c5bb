"""D3PM: a discrete process in T steps, undone one by one through q(x_s | x_t, x̂_0).

The network is told the time and says x̂_0; what a step does with it is `Kernel.posterior`, the
joint form of equation 4. The loss is the variational bound, with the paper's auxiliary term.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from dsl.denoiser import Question
from dsl.families.family import Family
from dsl.likelihoods.effort import Effort
from dsl.likelihoods.estimate import Estimator
from dsl.likelihoods.vlb import Vlb, step_nats
from dsl.models.timed import TimedModel, TimedShape
from dsl.streams import Streams
from dsl.teacher_forcing import AtTime, Level
from dsl.training.objective import Loss, Objective, counted, stratified, tallied
from dsl.types import Tokens

MOST_STEPS = 1_000_000
TIMES = (0.25, 0.5, 0.75)
"""Where networks are calibrated."""


@dataclass(frozen=True)
class D3pmShape(TimedShape):
    """The shape of D3PM's network; noise and schedule begin as the absorbing runs on text had them.

    Their 1/(T - t + 1) of the tokens left in every step is α = 1 - t.
    """

    timesteps: int = 1000
    """T."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.timesteps <= MOST_STEPS:
            raise ValueError(f"timesteps must lie in 1 … {MOST_STEPS:,}, got {self.timesteps}")


@dataclass(frozen=True)
class D3pmOptions:
    """What the objective leaves open."""

    hybrid: float = 0.01
    """λ: what the auxiliary -log p(x_0 | x_t) counts beside the KL of a step; 0 leaves it out."""

    def __post_init__(self) -> None:
        if not 0 <= self.hybrid <= 1e6:
            raise ValueError(f"hybrid must lie in [0, 1e6], got {self.hybrid}")


class D3pmModel(TimedModel):
    """A network with a time that comes in steps."""

    config: D3pmShape


class D3pmObjective(Objective):
    """A step of each sequence: T KL(q(x_s | x_t, x_0) ‖ p(x_s | x_t)) - λT log p(x_0 | x_t)."""

    model: D3pmModel

    def __init__(self, model: D3pmModel, options: D3pmOptions) -> None:
        super().__init__()
        self.model, self.options = model, options

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Spend each sequence on one step of T, the steps stratified over the global batch."""
        steps, kernel, alpha = self.model.config.timesteps, self.model.kernel, self.model.alpha
        u = stratified(streams, places, batch, tokens.device, torch.float64).squeeze(1)
        k = (u * steps).floor().clamp(max=steps - 1) + 1
        alpha_t, alpha_s = alpha(k / steps), alpha((k - 1) / steps)
        noisy = kernel.corrupt(tokens, alpha_t, generator=streams)
        logits = self.model.at_time(noisy, k / steps).float()
        bound = steps * step_nats(kernel, noisy, tokens, logits, alpha_t, alpha_s)
        parts, ratio = tallied(bound), self.options.hybrid * steps
        if not ratio:
            return Loss(bound.sum(), counted(tokens), parts)
        direct = step_nats(kernel, noisy, tokens, logits, alpha_t, torch.ones_like(alpha_s))
        parts["direct"] = tallied(direct)["all"]
        # divided by both weights: clipping then treats these gradients as it does any other's
        return Loss((bound + ratio * direct).sum() / (1 + ratio), counted(tokens), parts)


class D3pmFamily(Family):
    """Discrete diffusion in T steps."""

    name = "d3pm"
    summary = "discrete diffusion in T steps, by masks or by any token: its own sampler and bound"
    Shape = D3pmShape
    Options = D3pmOptions
    answers = frozenset({"time"})
    validated = ("vlb",)
    llama = False

    def build(self, shape: D3pmShape) -> nn.Module:
        """Make an untrained network."""
        return D3pmModel(shape)

    def answered_by(self, network: D3pmModel) -> frozenset[Question]:
        """Say that tokens may have been replaced, if that is the network's noise."""
        return frozenset({"time", "replaced"} if network.kernel.noise == "uniform" else {"time"})

    def objective(self, network: D3pmModel, options: D3pmOptions) -> Objective:
        """Train by the variational bound and the auxiliary term."""
        return D3pmObjective(network, options)

    def estimators(self, network: D3pmModel, effort: Effort) -> Sequence[Estimator]:
        """Score by the variational bound; one call of each replicate is the reconstruction."""
        steps, r, m = network.config.timesteps, effort.replicates, effort.draws
        return [Vlb(steps, r, m - 1, batch_size=effort.batch_size)]

    def levels(self, network: D3pmModel) -> Sequence[Level]:
        """Ask at a few times."""
        return [AtTime(t) for t in TIMES]
