"""The bound of masked diffusion with a network that is told the time: MD4's, and GenMD4's.

A masked token v is revealed at the rate w_v dg/g, where g = 1 - α falls from 1 to 0, and the
model's rate is the same mixed over its answer μ. The divergence of the two processes is

    -log P ≤ ∫ E Σ_{i masked} [w_i (-log μ_i(x_i)) + Σ_v w_v μ_i(v) - w_i] dg / g,

with equality for the true posterior; if all w are equal, cross-entropy is all that is left of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dsl.alpha import time_of
from dsl.denoiser import Timed
from dsl.likelihoods.estimate import Estimate, Kind, require_draws, require_logits
from dsl.likelihoods.roar import cross_entropy
from dsl.models.paced import paces
from dsl.streams import Randomness, uniform
from dsl.types import MASK, Mask, Tokens


@dataclass(frozen=True)
class MaskedBound:
    """The integral at moments when some token of the text is being masked.

    Drawn at uniform times, 1/g has no finite variance. Here a random token i is masked at
    g = u^{1/w_i}, the others if they were before, and the masked set S counts l / Σ_S w: the same
    integral with bounded weights. If all w are equal, |S| - 1 is uniform, as ROAR's sets are.
    """

    replicates: int = 8
    draws: int = 8
    """Moments in a replicate, u in each of as many strata."""
    batch_size: int = 256
    label: ClassVar[str] = "nelbo"
    kind: ClassVar[Kind] = "bound"

    def __post_init__(self) -> None:
        require_draws(self.replicates, self.draws)

    @torch.no_grad()
    def __call__(
        self, denoiser: Timed, tokens: Tokens, *, generator: Randomness = None
    ) -> Estimate:
        """Estimate the bound of every sequence."""
        if denoiser.kernel.noise != "absorbing":
            raise ValueError(
                "the masked bound is that of a process of masks: expected absorbing noise, "
                f"got {denoiser.kernel.noise}"
            )
        b, length = tokens.shape
        r, m = self.replicates, self.draws
        w = paces(denoiser.kernel).to(tokens.device, torch.float64)
        gone, hidden = self._moments(tokens, w, generator)
        many = tokens.view(b, 1, 1, length).expand(b, r, m, length).reshape(-1, length)
        t, hidden = time_of(denoiser.alpha, gone).flatten(), hidden.reshape(-1, length)
        parts = zip(*(x.split(self.batch_size) for x in (many, hidden, t)), strict=True)
        found = [rates(denoiser, rows, at, times, w) for rows, at, times in parts]
        weight = length / (w[many] * hidden).sum(dim=1, keepdim=True)
        return Estimate((weight * torch.cat(found)).reshape(b, r, m, length).mean(dim=2))

    def _moments(
        self, tokens: Tokens, w: Float[Tensor, "v"], generator: Randomness
    ) -> tuple[Float[Tensor, "b r m"], Bool[Tensor, "b r m l"]]:
        """Draw g, and the positions that are masked by then, one of which is just being masked."""
        b, length = tokens.shape
        shape = (b, self.replicates, self.draws)
        device = tokens.device
        draw = partial(uniform, generator=generator, dtype=torch.float64, device=device)
        u = (torch.arange(self.draws, device=device) + draw(shape)) / self.draws
        first = (draw(shape) * length).long()
        own = w[tokens].view(b, 1, 1, length)
        gone = u ** (1 / w[tokens.gather(1, first.flatten(1))].view(shape))
        hidden = draw((*shape, length)) < gone.unsqueeze(-1) ** own
        return gone, hidden.scatter(-1, first.unsqueeze(-1), True)


def rates(
    denoiser: Timed, tokens: Tokens, at: Mask, t: Float[Tensor, "b"], w: Float[Tensor, "v"]
) -> Float[Tensor, "b l"]:
    """Return w_i (-log μ_i(x_i)) + Σ_v w_v μ_i(v) - w_i at masked positions, 0 at the others."""
    logits = denoiser.at_time(tokens.masked_fill(at, MASK), t)[at].double()
    require_logits(logits)
    own = w[tokens[at]]
    found = torch.zeros(tokens.shape, dtype=torch.float64, device=tokens.device)
    found[at] = own * cross_entropy(logits, tokens[at]) + logits.softmax(dim=-1) @ w - own
    return found
