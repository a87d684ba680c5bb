"""MAC: an any-order model trained on the conditionals that its one way to answer a query needs.

A query asks for all tokens outside a set of known ones, or for the tokens of a set alone. An
any-order model could resolve it in any order; MAC always does it from left to right, and so needs
2^l - 1 of the l 2^(l-1) univariate conditionals (Shih et al., 2022).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from dsl.apps.zoo.ardm import hidden_losses
from dsl.core import Denoiser, Mask, Streams, Tokens, categorical, permutation, uniform
from dsl.families import Family, Level, Loss, Masked, MdlmModel, MdlmShape, Objective, stratified
from dsl.likelihoods import Causal, Effort, Estimator, Roar

Queries = Literal["conditional", "marginal"]


@dataclass(frozen=True)
class MacOptions:
    """Which queries a network is tuned for, and what it learns from a state they pass."""

    queries: Queries = "conditional"
    """conditional: P(all others | a random set of 0 … l-1 tokens). marginal: P(a random set of
    1 … l tokens); then no state shows the last token, and other orders than the text's go untrained
    where they know it."""
    targets: Literal["masked", "edge"] = "masked"
    """masked: every hidden token counts, in the mean, as in the authors' code. edge: the next one
    alone, which is all that the queries need; then the loss is what a query costs a token."""


class MacObjective(Objective):
    """-log p(x_i | x_A) at the states A that random queries pass, each as often as they pass it."""

    model: MdlmModel

    def __init__(self, model: MdlmModel, config: MacOptions) -> None:
        super().__init__()
        self.model, self.config = model, config

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Show each sequence one state of one query, the states stratified over the batch."""
        b, length = tokens.shape
        u = stratified(streams, places, batch, tokens.device, torch.float64)
        v = uniform((b, 1), generator=streams, dtype=torch.float64, device=tokens.device)
        known, size = drawn(self.config.queries, length, u, v)
        chosen = permutation((b, length), generator=streams, device=tokens.device) < size
        order = canonical(chosen)
        hidden, edge = order >= known, order == known
        at = edge if self.config.targets == "edge" else hidden
        losses = hidden_losses(self.model, tokens, hidden, at)
        each = losses.sum(dim=1) / at.sum(dim=1)
        count = torch.tensor(float(b), device=tokens.device)
        seen = losses.detach()
        parts = {"all": (each.detach().sum(), count), "edge": (seen[edge].sum(), edge.sum())}
        return Loss(each.sum(), count, parts)


class MacFamily(Family):
    """Any-order autoregression tuned to one order for each query."""

    name = "mac"
    summary = "any-order autoregression tuned to queries answered left to right: every masked path"
    Shape = MdlmShape
    Options = MacOptions
    protocol = Denoiser
    validated = ("causal", "roar")

    def build(self, shape: MdlmShape) -> nn.Module:
        """Make an untrained network."""
        return MdlmModel(shape)

    def objective(self, network: MdlmModel, options: MacOptions) -> Objective:
        """Train on the states that queries pass."""
        return MacObjective(network, options)

    def estimators(self, network: MdlmModel, effort: Effort) -> Sequence[Estimator]:
        """Score along the canonical order, whose likelihood is MAC's, and over all orders."""
        r, m = effort.replicates, effort.draws
        return [Causal(r, m, effort.batch_size), Roar(r, m, effort.batch_size)]

    def levels(self, network: MdlmModel) -> Sequence[Level]:
        """Ask at masks only."""
        return [Masked()]


def drawn(
    queries: Queries, length: int, u: Float[Tensor, "b 1"], v: Float[Tensor, "b 1"]
) -> tuple[Int[Tensor, "b 1"], Int[Tensor, "b 1"]]:
    """Return how many tokens a state knows, and the size of the set its query is about.

    Sizes t are uniform, and a query passes every state between its first and its last once. So
    the pairs are uniform: over 0 ≤ t ≤ k < l if conditional, over 0 ≤ k < t ≤ l if marginal.
    """
    passing = torch.arange(1, length + 1, dtype=torch.float64, device=u.device)
    if queries == "marginal":
        passing = passing.flip(0)
    k = categorical(passing.expand(*u.shape, length), u)
    inside = (v * passing[k]).long()
    return k, inside if queries == "conditional" else k + 1 + inside


def canonical(chosen: Mask) -> Int[Tensor, "b l"]:
    """Rank the positions in which a query takes them: the chosen first, each from left to right."""
    others = chosen.sum(dim=1, keepdim=True) + (~chosen).cumsum(dim=1)
    return torch.where(chosen, chosen.cumsum(dim=1), others) - 1
