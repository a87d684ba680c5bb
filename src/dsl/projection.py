"""Likelihood vectors as states: solve ⟨e, x_v⟩ = ℓ_v + const, or come as near as d allows."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.channel import require_finite
from dsl.types import Codebook


def represent(
    log_likelihood: Float[Tensor, "n v"], codebook: Codebook, snr_max: float = 100.0
) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n v"]]:
    """Turn likelihood vectors into states e, and what is left into residual logits.

    With d ≥ v - 1 points in general position the equations ⟨e, x_v⟩ = ℓ_v + const have a
    solution and e is it. Below that e is the projection in the sense of the exponential family:
    softmax⟨e, x⟩ has the mean embedding of softmax ℓ. A token that is ruled out counts as γ_max
    nats less likely than the best in e, and -inf in the residual; a single remaining token is the
    endpoint γ_max x_v.
    """
    rows, inverse = log_likelihood.unique(dim=0, return_inverse=True)
    if rows.isnan().any() or not (rows > -torch.inf).any(dim=1).all():
        raise ValueError("a likelihood vector needs at least one possible token and no NaN")
    possible = rows > -torch.inf
    best = rows.amax(dim=1, keepdim=True)
    floored = torch.maximum(rows, best - snr_max)
    e = _solve(floored, codebook)
    single = possible.sum(dim=1) == 1
    e[single] = snr_max * codebook[rows[single].argmax(dim=1)]
    require_finite(e)

    said = e @ codebook.T
    residual = torch.where(possible, rows - said, 0.0)
    residual = residual - residual.sum(dim=1, keepdim=True) / possible.sum(dim=1, keepdim=True)
    # What rounding leaves over is no residual: an exact e must not cost a pass over the logits.
    noise = 1e3 * torch.finfo(rows.dtype).eps * (1 + floored.abs().amax(dim=1, keepdim=True))
    residual = torch.where(residual.abs() <= noise, 0.0, residual)
    residual = torch.where(possible, residual, -torch.inf)
    return e[inverse], residual[inverse]


def _solve(log_likelihood: Float[Tensor, "n v"], codebook: Codebook) -> Float[Tensor, "n d"]:
    v, d = codebook.shape
    centred = codebook - codebook.mean(dim=0)
    if d >= v - 1 and torch.linalg.matrix_rank(centred) == v - 1:
        wanted = log_likelihood - log_likelihood.mean(dim=1, keepdim=True)
        inverse: Tensor = torch.linalg.pinv(centred)
        return wanted @ inverse.T
    return torch.cat([_match_mean(row, codebook) for row in log_likelihood.split(1)])


def _match_mean(
    log_likelihood: Float[Tensor, "1 v"], codebook: Codebook, *, steps: int = 100
) -> Float[Tensor, "1 d"]:
    """Find e with E_{softmax⟨e,x⟩}[x] = E_{softmax ℓ}[x], by damped Newton steps.

    That e minimises KL(softmax ℓ ‖ softmax⟨e, x⟩), a convex problem. The small ridge keeps e
    finite where ℓ is so sharp that the minimum lies at infinity.
    """
    ridge = 1e-4
    table = codebook.double()
    target = log_likelihood.double().softmax(dim=-1) @ table
    identity = torch.eye(table.shape[1], dtype=table.dtype, device=table.device)

    def loss(e: Tensor) -> Tensor:
        return (e @ table.T).logsumexp(dim=-1) - (e * target).sum() + ridge / 2 * (e * e).sum()

    e = torch.zeros_like(target)
    for _ in range(steps):
        p = (e @ table.T).softmax(dim=-1)
        mean = p @ table
        gradient = mean - target + ridge * e
        if gradient.norm() < 1e-10:
            break
        covariance = (table.T * p) @ table - mean.T @ mean + ridge * identity
        step = torch.linalg.solve(covariance, gradient.T).T
        size, now = 1.0, loss(e)
        while size > 1e-8 and loss(e - size * step) > now - 0.25 * size * (gradient * step).sum():
            size /= 2
        e = e - size * step
    return e.to(codebook.dtype)
