"""MAC: an any-order model trained on left-to-right queries only (Shih et al., 2022).

A query is for all tokens outside a known set, or for the tokens of a set alone. An any-order model
can answer it in any order. MAC always answers from left to right, so it needs only 2^l - 1 of the
l 2^(l-1) univariate conditionals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dsl.apps.zoo.ardm import hidden_losses
from dsl.core import Mask, Streams, Tokens, categorical, permutation, uniform
from dsl.families import Loss, MaskedFamily, MdlmModel, Objective, stratified
from dsl.likelihoods import Causal, Effort, Estimator, Roar

Queries = Literal["conditional", "marginal"]


@dataclass(frozen=True)
class MacOptions:
    """The queries a network is trained for, and the tokens that it predicts in their states."""

    queries: Queries = "conditional"
    """conditional: P(all others | a random set of 0 … l-1 tokens). marginal: P(a random set of
    1 … l tokens). Marginal queries never condition on the last token, so other orders are not
    trained there."""
    targets: Literal["masked", "edge"] = "masked"
    """masked: the mean over all hidden tokens, as in the authors' code. edge: the next token only,
    which is all that queries need; the loss is then the cost of a query per token."""


class MacObjective(Objective):
    """-log p(x_i | x_A) at the states A of random queries, in proportion to their frequency."""

    model: MdlmModel

    def __init__(self, model: MdlmModel, config: MacOptions) -> None:
        super().__init__()
        self.model, self.config = model, config

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Draw one state of one query for each sequence, stratified over the batch."""
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


class MacFamily(MaskedFamily):
    """Any-order autoregression with one order for each query."""

    name = "mac"
    summary = "any-order autoregression trained on left-to-right queries: every masked path"
    Options = MacOptions
    Network = MdlmModel
    validated = ("causal", "roar")

    def objective(self, network: MdlmModel, options: MacOptions) -> Objective:
        """Train on the states of queries."""
        return MacObjective(network, options)

    def estimators(self, network: MdlmModel, effort: Effort) -> Sequence[Estimator]:
        """Score from left to right, which is MAC's likelihood, and over all orders."""
        r, m = effort.replicates, effort.draws
        return [Causal(r, m, effort.batch_size), Roar(r, m, effort.batch_size)]


def drawn(
    queries: Queries, length: int, u: Float[Tensor, "b 1"], v: Float[Tensor, "b 1"]
) -> tuple[Int[Tensor, "b 1"], Int[Tensor, "b 1"]]:
    """Return the number of known tokens of a state, and the size of its query's set.

    Sizes t are uniform, and a query visits every state from its first to its last once. So the
    pairs are uniform: over 0 ≤ t ≤ k < l if conditional, over 0 ≤ k < t ≤ l if marginal.
    """
    passing = torch.arange(1, length + 1, dtype=torch.float64, device=u.device)
    if queries == "marginal":
        passing = passing.flip(0)
    k = categorical(passing.expand(*u.shape, length), u)
    inside = (v * passing[k]).long()
    return k, inside if queries == "conditional" else k + 1 + inside


def canonical(chosen: Mask) -> Int[Tensor, "b l"]:
    """Return each position's rank in a query: chosen positions first, both from left to right."""
    others = chosen.sum(dim=1, keepdim=True) + (~chosen).cumsum(dim=1)
    return torch.where(chosen, chosen.cumsum(dim=1), others) - 1
