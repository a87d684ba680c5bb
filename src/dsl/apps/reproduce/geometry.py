"""The paper's figure 2: trajectories of the converter's output, and recovery against SNR."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dsl.apps.reproduce.charts import panels
from dsl.models import DSLModel


@dataclass(frozen=True, eq=False)
class Rays:
    """The converter's output for γ x_v, at tokens v and SNRs γ."""

    snr: Float[Tensor, "s"]
    tokens: Int[Tensor, "n"]
    mixtures: Float[Tensor, "s n h"]
    """The backbone's input."""
    weights: Float[Tensor, "s n w"]
    """q(· | z) over the tokens and, last, [MASK]."""

    @property
    def target_probability(self) -> Float[Tensor, "s n"]:
        """q(v | γ x_v), the weight of the token's own row in the mixture."""
        index = self.tokens.expand(len(self.snr), -1).unsqueeze(-1)
        return self.weights.gather(-1, index).squeeze(-1)

    @property
    def recovered(self) -> Float[Tensor, "s"]:
        """The share of tokens that have the largest weight, [MASK] included, on their own ray."""
        return (self.weights.argmax(dim=-1) == self.tokens).double().mean(dim=-1)

    def principal_plane(self) -> Float[Tensor, "s n 2"]:
        """Project the mixtures on their first two principal components, with [MASK] at 0."""
        rows = self.mixtures.flatten(0, 1).double()
        _, _, axes = torch.linalg.svd(rows - rows.mean(dim=0), full_matrices=False)
        axes = axes[:2] * axes[:2].sum(dim=1, keepdim=True).sign()  # make the sign unique
        plane: Tensor = (self.mixtures.double() - self.mixtures[0].double().mean(dim=0)) @ axes.T
        return plane


@torch.no_grad()
def rays(model: DSLModel, tokens: Sequence[int], snr: Float[Tensor, "s"]) -> Rays:
    """Apply the converter to every token's embedding at every SNR."""
    codebook = model.codebook
    chosen = torch.as_tensor(tokens, device=codebook.device)
    gamma = snr.to(codebook)
    z = gamma[:, None, None] * codebook[chosen]
    weights = model.converter.weights(z.flatten(0, 1), codebook).unflatten(0, z.shape[:2])
    return Rays(gamma, chosen, model.converter(z, codebook), weights)


def geometry(rays: Rays, names: Sequence[str], path: Path) -> None:
    """Draw both panels; `names` are the texts of the tokens.

    The paper projects with t-SNE. Principal components keep lines straight and have no parameters,
    so two runs draw the same picture.
    """
    plane, snr = rays.principal_plane(), rays.snr.double()
    with panels(path, 2, 10.0, 4.2) as (figure, (left, right)):
        for column, name in enumerate(names):
            x, y = plane[:, column].unbind(dim=-1)
            left.plot(x, y, color="#cccccc", linewidth=0.8, zorder=1)
            dots = left.scatter(x, y, c=snr, norm="log", s=9, cmap="viridis", zorder=2)
            left.annotate(name, (float(x[-1]), float(y[-1])), fontsize=9)
        left.set(xlabel="first principal component", ylabel="second principal component")
        left.set_title("converter output along γ·x, from [MASK]", fontsize=10)
        left.grid(False)
        figure.colorbar(dots, ax=left, label="SNR γ")
        right.plot(snr, rays.recovered, label="top-1 recovery")
        right.plot(snr, rays.target_probability.double().mean(dim=1), label="target probability")
        right.set(xscale="log", xlabel="SNR γ")
        right.set_title(f"mean of {len(names)} tokens", fontsize=10)
        right.legend(fontsize=8)
