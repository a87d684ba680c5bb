"""Evidence about each position, as a state: it adds, because z is a natural parameter.

A hint about a token is a likelihood vector ℓ over the vocabulary. It enters as the vector e with
⟨e, x_v⟩ = ℓ_v + const, and P(x | e) ∝ P(x) e^{⟨x, e⟩}; so the denoiser of the conditioned
distribution is z ↦ f(z + e), exactly, for every denoiser f and every path. A token that is known
for certain needs no vector: its position is pinned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dsl._util.validate import sequence
from dsl.conditioning.hints import Allowed, Confident, Hint, Hints, Known, NBest, Observed, Unknown
from dsl.conditioning.wrapper import ContinuousWrapper, Wrapper, stretch
from dsl.core.channel import require_finite
from dsl.core.denoiser import Continuous, Denoiser, Endpoints, Network
from dsl.core.types import MASK, Codebook, Mask, Noisy, Rows, Tokens


def represent(
    log_likelihood: Float[Tensor, "n v"], codebook: Codebook, snr_max: float = 100.0
) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n v"]]:
    """Turn likelihood vectors into states e and residual logits.

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
    # Drop rounding noise: with an exact e no pass over the logits is needed.
    noise = 1e3 * torch.finfo(rows.dtype).eps * (1 + floored.abs().amax(dim=1, keepdim=True))
    residual = torch.where(residual.abs() <= noise, 0.0, residual)
    residual = torch.where(possible, residual, -torch.inf)
    return e[inverse], residual[inverse]


def _solve(log_likelihood: Float[Tensor, "n v"], codebook: Codebook) -> Float[Tensor, "n d"]:
    v, d = codebook.shape
    centred = codebook - codebook.mean(dim=0)
    # Centring unit rows leaves rounding errors of about eps, however close the rows are: singular
    # values below that are zero. A limit relative to the largest one would be too low.
    rounding = max(v, d) * torch.finfo(codebook.dtype).eps
    if d >= v - 1 and torch.linalg.matrix_rank(centred, atol=rounding) == v - 1:
        wanted = log_likelihood - log_likelihood.mean(dim=1, keepdim=True)
        inverse: Tensor = torch.linalg.pinv(centred, atol=rounding)
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


__all__ = [
    "Allowed",
    "Confident",
    "Evidence",
    "Hint",
    "Hints",
    "Known",
    "NBest",
    "Observed",
    "Unknown",
    "given",
]


@dataclass(frozen=True, eq=False)
class Evidence:
    """Evidence about every position of a batch, used to condition a denoiser.

    >>> Evidence.of([[Unknown(), Confident(2, 0.8), Known(5)]], denoiser)
    """

    pinned: Tokens
    """The token of a position that is known for certain, MASK elsewhere."""
    e: Noisy | None = None
    """Uncertain evidence, as a state; None if there is none."""
    at: Mask | None = None
    """The positions that have a residual, if any."""
    residual: Float[Tensor, "n v"] | None = None
    """The remainder that is added to the logits of those positions, in order: the part of ℓ
    outside the span of the codebook when d < v - 1, and -inf for tokens that are ruled out."""

    @classmethod
    def of(cls, hints: Sequence[Hints], denoiser: Network) -> Evidence:
        """Collect hints about a batch of sequences.

        Args:
            hints: A list for each sequence, with a hint (or several, which add up) for each of its
                positions. All sequences have one length.
            denoiser: The network, for its vocabulary and codebook. A network without continuous
                states takes masks and tokens only.
        """
        rows = [
            [_several(position) for position in sequence("hints", row, "hints")]
            for row in sequence("hints", hints, "lists of hints")
        ]
        lengths = {len(row) for row in rows}
        if len(lengths) != 1 or lengths == {0}:
            raise ValueError(f"all sequences of a batch need one length, got {sorted(lengths)}")
        pinned = torch.tensor(
            [[_certain(row, j, denoiser) for j in range(len(row))] for row in rows]
        )
        soft = [
            (i, j)
            for i, row in enumerate(rows)
            for j, position in enumerate(row)
            if pinned[i, j] == MASK and not all(isinstance(hint, Unknown) for hint in position)
        ]
        if not soft:
            return cls(pinned.to(denoiser.device))
        if not isinstance(denoiser, Continuous):
            raise ValueError(
                "this network reads masks and tokens only: it takes no confidences, "
                f"got {rows[soft[0][0]][soft[0][1]][0]}"
            )
        at = torch.zeros_like(pinned, dtype=torch.bool)
        at[tuple(torch.tensor(soft).T)] = True
        codebook = denoiser.codebook.detach()
        vectors = torch.stack([log_likelihood(rows[i][j], codebook, j) for i, j in soft])
        states, residual = represent(vectors, codebook, denoiser.snr_max)
        at = at.to(codebook.device)
        e = codebook.new_zeros(*pinned.shape, codebook.shape[1])
        e[at] = states
        left = (residual != 0).any(dim=1)
        if not left.any():
            return cls(pinned.to(codebook.device), e)
        with_rest = torch.zeros_like(at).masked_scatter(at, left)
        return cls(pinned.to(codebook.device), e, with_rest, residual[left])

    def expand(self, n: int) -> Evidence:
        """Repeat the evidence about one sequence for n of them."""
        return self.take([0] * n)

    def take(self, rows: Sequence[int]) -> Evidence:
        """Choose sequences of the batch, in any order and any number of times."""
        pinned = self.pinned[list(rows)]
        e = None if self.e is None else self.e[list(rows)]
        if self.at is None or self.residual is None:
            return Evidence(pinned, e)
        counts = self.at.sum(dim=1)
        ends = counts.cumsum(dim=0)
        parts = [self.residual[int(ends[row] - counts[row]) : int(ends[row])] for row in rows]
        return Evidence(pinned, e, self.at[list(rows)], torch.cat(parts))

    def stretch(self, begin: int, end: int) -> Evidence:
        """Keep the evidence about positions `begin` to `end` (exclusive)."""
        pinned = self.pinned[:, begin:end]
        e = None if self.e is None else self.e[:, begin:end]
        if self.at is None or self.residual is None:
            return Evidence(pinned, e)
        inside = torch.zeros_like(self.at)
        inside[:, begin:end] = True
        return Evidence(pinned, e, self.at[:, begin:end], self.residual[inside[self.at]])

    def to(self, device: torch.device) -> Evidence:
        """Move everything to a device."""
        moved = {
            name: value.to(device)
            for name in ("pinned", "e", "at", "residual")
            if (value := getattr(self, name)) is not None
        }
        return replace(self, **moved)

    @property
    def soft(self) -> Evidence:
        """Copy without pinned tokens, for callers that pin them themselves."""
        return replace(self, pinned=torch.full_like(self.pinned, MASK))


def log_likelihood(hints: Sequence[Hint], codebook: Codebook, place: int = 0) -> Float[Tensor, "v"]:
    """Add up the log-likelihoods of several hints about one position."""
    total = codebook.new_zeros(codebook.shape[0])
    for hint in hints:
        total = total + hint.log_likelihood(codebook)
    if not (total > -torch.inf).any():
        raise ValueError(_contradiction(hints, place))
    return total


def given(denoiser: Any, evidence: Evidence) -> Denoiser:
    """Condition a denoiser on evidence: z ↦ f(z + e), plus the residual on its own position.

    Pinned positions are always passed to the denoiser as their tokens; the state there is ignored.
    Evidence about one sequence conditions every sequence of every batch; evidence about several
    conditions batches of just as many.
    """
    # Every torch module looks callable; a network with an SNR or time input has no forward.
    silent = isinstance(denoiser, nn.Module) and type(denoiser).forward is nn.Module.forward
    if silent or not isinstance(denoiser, Denoiser):
        raise ValueError(f"only a denoiser can be conditioned, got a {type(denoiser).__name__}")
    if not isinstance(evidence, Evidence):
        raise ValueError(f"evidence must be Evidence.of(hints, denoiser), got {evidence!r}")
    if isinstance(denoiser, Continuous):
        return GivenContinuous(denoiser, evidence)
    return Given(denoiser, evidence)


@dataclass(frozen=True, eq=False)
class Given(Wrapper):
    """A denoiser of masked states with pinned tokens."""

    evidence: Evidence

    def __call__(self, z: Noisy | Endpoints, /, *, at: Mask | None = None) -> Rows:
        """Call the denoiser on the state plus the evidence."""
        hints = self._sized(len(z.tokens) if isinstance(z, Endpoints) else len(z))
        return _corrected(self.denoiser(self.conditioned(z, hints), at=at), hints, at)

    def stretch(self, begin: int, end: int) -> Wrapper:
        """Restrict the evidence to some positions."""
        inner = stretch(self.denoiser, begin, end)
        return replace(self, denoiser=inner, evidence=self.evidence.stretch(begin, end))

    def conditioned(self, z: Noisy | Endpoints, hints: Evidence) -> Noisy | Endpoints:
        """Return the state that is passed to the inner denoiser."""
        if not isinstance(z, Endpoints):
            return z
        return Endpoints(_shown(z.tokens, hints), z.e)

    def _sized(self, b: int) -> Evidence:
        n = len(self.evidence.pinned)
        if n == b:
            return self.evidence
        if n != 1:
            raise ValueError(f"evidence about {n} sequences cannot condition {b}")
        return self.evidence.expand(b)


@dataclass(frozen=True, eq=False)
class GivenContinuous(Given, ContinuousWrapper):
    """A denoiser with continuous states, to which the evidence is added."""

    def conditioned(self, z: Noisy | Endpoints, hints: Evidence) -> Noisy | Endpoints:
        """Add e to the state, and put pinned positions at their endpoint γ_max x_v."""
        held = hints.pinned != MASK
        if isinstance(z, Endpoints):
            e = hints.e if z.e is None else z.e if hints.e is None else z.e + hints.e
            e = None if e is None else e.masked_fill(held.unsqueeze(-1), 0.0)
            return Endpoints(_shown(z.tokens, hints), e)
        state = z if hints.e is None else z + hints.e
        if not held.any():
            return state
        ends = Endpoints(hints.pinned).z(self.codebook.detach(), self.snr_max)
        return torch.where(held.unsqueeze(-1), ends.to(state.dtype), state)


def _corrected(logits: Rows, hints: Evidence, at: Mask | None) -> Rows:
    """Add residuals to the rows that have one, and make pinned rows one-hot."""
    asked = torch.ones_like(hints.pinned, dtype=torch.bool) if at is None else at
    if hints.at is not None and hints.residual is not None and (hints.at & asked).any():
        rows = tuple(hints.at.nonzero().T) if at is None else (hints.at[at].nonzero().squeeze(1),)
        logits = logits.index_put(rows, hints.residual[asked[hints.at]], accumulate=True)
    held = (hints.pinned != MASK) & asked
    if not held.any():
        return logits
    sure = logits.new_full((int(held.sum()), logits.shape[-1]), -torch.inf)
    sure.scatter_(1, hints.pinned[held].unsqueeze(1), 0.0)
    rows = tuple(held.nonzero().T) if at is None else (held[at].nonzero().squeeze(1),)
    return logits.index_put(rows, sure)


def _shown(tokens: Tokens, hints: Evidence) -> Tokens:
    return torch.where(hints.pinned != MASK, hints.pinned, tokens)


def _several(position: Hint | Sequence[Hint]) -> Sequence[Hint]:
    hints = position if isinstance(position, Sequence) else (position,)
    for hint in hints:
        if not isinstance(hint, Hint):
            raise ValueError(f"hints must be Unknown(), Known(token), … ; got {hint!r}")
    return hints


def _certain(row: Sequence[Sequence[Hint]], place: int, denoiser: Network) -> int:
    """Return the token that the hints determine for certain, or MASK."""
    hints = row[place]
    sure = {hint.token for hint in hints if isinstance(hint, Known)}
    if not sure:
        return MASK
    token = min(sure)
    if not 0 <= token < denoiser.vocab_size or max(sure) >= denoiser.vocab_size:
        raise ValueError(f"token ids must lie in 0 … {denoiser.vocab_size - 1}, got {sorted(sure)}")
    if len(sure) > 1 or not all(hint.allows(token) for hint in hints):
        raise ValueError(_contradiction(hints, place))
    return token


def _contradiction(hints: Sequence[Hint], place: int) -> str:
    return (
        f"the evidence at position {place} contradicts itself: "
        f"no token is compatible with all of {list(hints)}"
    )
