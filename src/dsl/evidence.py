"""What is known about each position, as a state: evidence adds, because z is a natural parameter.

A hint about a token is a likelihood vector ℓ over the vocabulary. It enters as the vector e with
⟨e, x_v⟩ = ℓ_v + const, and P(x | e) ∝ P(x) e^{⟨x, e⟩}; so the denoiser of the conditioned
distribution is z ↦ f(z + e), exactly, for every denoiser f and every path.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.channel import require_finite
from dsl.denoiser import Denoiser, Endpoints, require_tokens
from dsl.types import Codebook, Logits, Mask, Noisy, Rows


@dataclass(frozen=True)
class Unknown:
    """Nothing is known: [MASK]."""

    def log_likelihood(self, codebook: Codebook) -> Float[Tensor, "v"]:
        """Return ℓ = 0."""
        return codebook.new_zeros(codebook.shape[0])


@dataclass(frozen=True)
class Known:
    """The token is this one, for certain."""

    token: int

    def log_likelihood(self, codebook: Codebook) -> Float[Tensor, "v"]:
        """Return 0 for the token and -inf for all others."""
        return Allowed((self.token,)).log_likelihood(codebook)


@dataclass(frozen=True)
class Observed:
    """The token was seen through the channel at this SNR, without noise: e = γ x_v."""

    token: int
    snr: float

    def log_likelihood(self, codebook: Codebook) -> Float[Tensor, "v"]:
        """Return γ ⟨x_token, x_v⟩."""
        if not (self.snr >= 0 and math.isfinite(self.snr)):
            raise ValueError(f"SNR must be finite and >= 0, got {self.snr:g}")
        require_tokens(torch.tensor(self.token), codebook)
        return self.snr * codebook @ codebook[self.token]


@dataclass(frozen=True)
class Confident:
    """A recogniser read this token and is right with this probability."""

    token: int
    probability: float

    def log_likelihood(self, codebook: Codebook) -> Float[Tensor, "v"]:
        """Return ln p for the token and an equal share of 1 - p for every other."""
        return NBest({self.token: self.probability}).log_likelihood(codebook)


@dataclass(frozen=True)
class NBest:
    """Candidates with probabilities; what they leave over is shared by all other tokens."""

    probabilities: Mapping[int, float]

    def log_likelihood(self, codebook: Codebook) -> Float[Tensor, "v"]:
        """Return the log of the completed distribution; -inf where nothing is left over."""
        require_tokens(torch.tensor(list(self.probabilities)), codebook)
        total = math.fsum(self.probabilities.values())
        if min(self.probabilities.values(), default=0.0) < 0 or not total <= 1 + 1e-6:
            raise ValueError(
                "candidate probabilities must be >= 0 and sum to at most 1, "
                f"got {dict(self.probabilities)} with sum {total:g}"
            )
        others = codebook.shape[0] - len(self.probabilities)
        # A remainder below the rounding of the sum is no remainder.
        rest = 1 - total if 1 - total > 1e-9 else 0.0
        p = codebook.new_full((codebook.shape[0],), rest / others if others else 0.0)
        for token, probability in self.probabilities.items():
            p[token] = probability
        return p.log()


@dataclass(frozen=True)
class Allowed:
    """The token is one of these."""

    tokens: Sequence[int]

    def log_likelihood(self, codebook: Codebook) -> Float[Tensor, "v"]:
        """Return 0 for the allowed tokens and -inf for all others."""
        if not self.tokens:
            raise ValueError("an allowed set must contain at least one token, got none")
        require_tokens(torch.tensor(self.tokens), codebook)
        log_likelihood = codebook.new_full((codebook.shape[0],), -torch.inf)
        log_likelihood[list(self.tokens)] = 0.0
        return log_likelihood


Observation = Unknown | Known | Observed | Confident | NBest | Allowed


@dataclass(frozen=True, eq=False)
class Evidence:
    """Evidence about every position of a batch, ready to be added to a state."""

    e: Noisy
    residual: Logits | None = None
    """What e cannot say, added to the position's own logits: the part of ℓ outside the span of
    the codebook when d < v - 1, and -inf for tokens that are ruled out."""

    def expand(self, n: int) -> Evidence:
        """Repeat the evidence about one sequence for n of them."""
        residual = None if self.residual is None else self.residual.expand(n, -1, -1)
        return Evidence(self.e.expand(n, -1, -1), residual)


def likelihood(
    observations: Sequence[Sequence[Observation | Sequence[Observation]]], codebook: Codebook
) -> Logits:
    """Collect the likelihood vectors of a batch; several hints about one position add up."""
    lengths = {len(row) for row in observations}
    if len(lengths) != 1:
        raise ValueError(f"all sequences of a batch need one length, got {sorted(lengths)}")
    batch = []
    for row in observations:
        vectors = []
        for position, hints in enumerate(row):
            hints = hints if isinstance(hints, Sequence) else (hints,)
            total = codebook.new_zeros(codebook.shape[0])
            for hint in hints:
                total = total + hint.log_likelihood(codebook)
            if not (total > -torch.inf).any():
                raise ValueError(
                    f"the evidence at position {position} contradicts itself: "
                    f"no token is compatible with all of {list(hints)}"
                )
            vectors.append(total)
        batch.append(torch.stack(vectors))
    return torch.stack(batch)


def evidence(log_likelihood: Logits, codebook: Codebook, snr_max: float = 100.0) -> Evidence:
    """Turn likelihood vectors into states e, and what is left into residual logits.

    With d ≥ v - 1 points in general position the equations ⟨e, x_v⟩ = ℓ_v + const have a
    solution and e is it. Below that e is the projection in the sense of the exponential family:
    softmax⟨e, x⟩ has the mean embedding of softmax ℓ. A token that is ruled out counts as γ_max
    nats less likely than the best in e, and -inf in the residual; a single remaining token is the
    endpoint γ_max x_v.
    """
    rows, inverse = log_likelihood.flatten(0, 1).unique(dim=0, return_inverse=True)
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

    shape = log_likelihood.shape[:2]
    return Evidence(
        e[inverse].unflatten(0, shape),
        residual[inverse].unflatten(0, shape) if (residual != 0).any() else None,
    )


def given(denoiser: Denoiser, evidence: Evidence) -> Denoiser:
    """Condition a denoiser on evidence: z ↦ f(z + e), plus the residual on its own position.

    Evidence about one sequence conditions every sequence of every batch; evidence about several
    conditions batches of just as many.
    """
    return _Given(denoiser, evidence)


@dataclass(frozen=True, eq=False)
class _Given:
    denoiser: Denoiser
    evidence: Evidence

    @property
    def codebook(self) -> Codebook:
        return self.denoiser.codebook

    @property
    def snr_max(self) -> float:
        return self.denoiser.snr_max

    def __call__(self, z: Noisy | Endpoints, /, *, at: Mask | None = None) -> Rows:
        hints = self.evidence
        b = len(z.tokens) if isinstance(z, Endpoints) else len(z)
        if len(hints.e) == 1:
            hints = hints.expand(b)
        elif len(hints.e) != b:
            raise ValueError(f"evidence about {len(hints.e)} sequences cannot condition {b}")
        if isinstance(z, Endpoints):
            state: Noisy | Endpoints = Endpoints(
                z.tokens, hints.e if z.e is None else z.e + hints.e
            )
        else:
            state = z + hints.e
        logits = self.denoiser(state, at=at)
        if hints.residual is None:
            return logits
        return logits + (hints.residual if at is None else hints.residual[at])


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
