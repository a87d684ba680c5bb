"""How sure the network is of each token of a finished text."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.denoiser import Denoiser, Endpoints
from dsl.types import MASK, Tokens


@torch.no_grad()
def leave_one_out(denoiser: Denoiser, tokens: Tokens) -> Float[Tensor, "b l"]:
    """Return P(token | all others, and the evidence) of every position, hiding one at a time."""
    columns = []
    for i in range(tokens.shape[1]):
        at = torch.zeros_like(tokens, dtype=torch.bool)
        at[:, i] = True
        p = denoiser(Endpoints(tokens.masked_fill(at, MASK)), at=at).double().softmax(dim=-1)
        columns.append(p.gather(1, tokens[:, i : i + 1]))
    return torch.cat(columns, dim=1)
