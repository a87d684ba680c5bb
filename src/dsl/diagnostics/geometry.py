"""How the converter reads the ray of a token: direction names it, norm says how surely (section 4).

Figure 2 sweeps z = γ x_v, without noise, from [MASK] to a hard token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dsl.models.model import DSLModel


@dataclass(frozen=True, eq=False)
class Rays:
    """What the converter makes of γ x_v, for some tokens v at some SNRs γ."""

    snr: Float[Tensor, "s"]
    tokens: Int[Tensor, "n"]
    mixtures: Float[Tensor, "s n h"]
    """The backbone's input."""
    weights: Float[Tensor, "s n w"]
    """q(· | z) over the tokens and, last, [MASK]."""

    @property
    def target_probability(self) -> Float[Tensor, "s n"]:
        """q(v | γ x_v): how much of the token's own row is in the mixture."""
        index = self.tokens.expand(len(self.snr), -1).unsqueeze(-1)
        return self.weights.gather(-1, index).squeeze(-1)

    @property
    def recovered(self) -> Float[Tensor, "s"]:
        """The share of tokens that outweigh all others and [MASK] on their own ray."""
        return (self.weights.argmax(dim=-1) == self.tokens).double().mean(dim=-1)

    def principal_plane(self) -> Float[Tensor, "s n 2"]:
        """Project the mixtures on the plane they vary most in, the mask's end at the origin."""
        rows = self.mixtures.flatten(0, 1).double()
        _, _, axes = torch.linalg.svd(rows - rows.mean(dim=0), full_matrices=False)
        axes = axes[:2] * axes[:2].sum(dim=1, keepdim=True).sign()  # a sign that is no accident
        plane: Tensor = (self.mixtures.double() - self.mixtures[0].double().mean(dim=0)) @ axes.T
        return plane


@torch.no_grad()
def rays(model: DSLModel, tokens: Sequence[int], snr: Float[Tensor, "s"]) -> Rays:
    """Send every token's embedding through the converter at every SNR."""
    codebook = model.codebook
    chosen = torch.as_tensor(tokens, device=codebook.device)
    gamma = snr.to(codebook)
    z = gamma[:, None, None] * codebook[chosen]
    weights = model.converter.weights(z.flatten(0, 1), codebook).unflatten(0, z.shape[:2])
    return Rays(gamma, chosen, model.converter(z, codebook), weights)
