"""Training objectives: tokens in, a sum of losses out, in one forward pass."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from dsl.core.streams import Randomness, Streams, uniform
from dsl.core.types import Mask, Tokens

Parts = dict[str, tuple[Tensor, Tensor]]
"""Sums and counts by name, so that batches and ranks can be averaged correctly."""


@dataclass(frozen=True, eq=False)
class Loss:
    """The losses of some items, with parts for logging.

    A sum and a count rather than a mean: the count of a micro-batch may depend on chance, and only
    the whole batch's sum over its whole count is the same however the batch is cut up.
    """

    sum: Float[Tensor, ""]
    count: Float[Tensor, ""]
    parts: Parts
    learned: Float[Tensor, "n"] | None = None
    """Sums that are reduced over the whole batch and passed to `learn` after the step."""

    @property
    def mean(self) -> Float[Tensor, ""]:
        """The loss of an average position."""
        return self.sum / self.count.clamp(min=1)


class Objective(nn.Module):
    """A model with its training loss.

    It is one module, because distributed wrappers and the compiler need a single forward.
    """

    model: nn.Module
    """The network that is trained."""

    @abstractmethod
    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Return the loss of items of the global batch.

        Args:
            tokens: The items.
            streams: Where each item draws its noise from.
            places: Where the items stand in the global batch.
            batch: The size of the global batch.
        """

    def begin(self, progress: float) -> None:
        """Receive the share of completed steps, in [0, 1), before every step.

        An objective that changes during a run must depend on this value only, so that a resumed run
        continues exactly.
        """

    def learn(self, sums: Float[Tensor, "n"]) -> None:
        """Receive the reduced `learned` sums after every step, the same on every rank.

        Store results in buffers, which are saved in checkpoints.
        """

    def own(self) -> dict[str, Tensor]:
        """Return the state of the objective that is not the network's."""
        state = self.state_dict()
        return {name: tensor for name, tensor in state.items() if not name.startswith("model.")}


def tallied(losses: Float[Tensor, "b l"], **groups: Bool[Tensor, "b l"]) -> Parts:
    """Sum and count losses over all positions, and over groups of them."""
    everywhere = torch.ones_like(losses, dtype=torch.bool)
    return {
        name: ((losses.detach() * at).sum(), at.sum())
        for name, at in {"all": everywhere, **groups}.items()
    }


def stratified(
    streams: Randomness,
    places: range,
    batch: int,
    device: torch.device,
    dtype: torch.dtype | None = None,
) -> Float[Tensor, "b 1"]:
    """Draw a number of [0, 1) for each item, in the stratum of its place in the global batch."""
    stratum = torch.tensor(list(places), device=device).unsqueeze(1)
    u = uniform((len(places), 1), generator=streams, dtype=dtype, device=device)
    return (u + stratum) / batch


def surprise(logits: Float[Tensor, "n v"], tokens: Tokens, at: Mask) -> Float[Tensor, "b l"]:
    """Return -log p of the tokens at the chosen positions, and 0 elsewhere."""
    losses = torch.zeros(tokens.shape, device=tokens.device)
    losses[at] = nn.functional.cross_entropy(logits.float(), tokens[at], reduction="none")
    return losses


def counted(tokens: Tokens) -> Tensor:
    """Return the number of positions, as the count of a loss over all of them."""
    return torch.tensor(float(tokens.numel()), device=tokens.device)
