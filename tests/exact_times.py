"""Bayes-optimal networks of discrete processes, by enumeration of an exact oracle."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from dsl.apps.zoo.kernel import Kernel, Noise
from dsl.core.alpha import Linear, Schedule
from dsl.core.oracle import Enumerated, Oracle
from tests.doubles import Double


class Process(Double):
    """A small distribution under a discrete process, by enumeration of its sequences.

    Samplers call it on many equal texts at one time, and each distinct text is computed once.
    """

    def __init__(self, truth: Enumerated, noise: Noise, alpha: Schedule = Linear()) -> None:
        self.truth, self.codebook = truth, truth.codebook
        self.kernel, self.alpha = Kernel(noise, len(truth.codebook)), alpha
        self.sequences = 0
        self.told: list[Tensor] = []

    def joint(self, tokens: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return log P(x_0) + log q(x_t | x_0) of every x_0, and each position's share of it."""
        field = self.kernel.log_likelihood(tokens, self.alpha(t.double()))  # (b, l, v)
        position = torch.arange(self.truth.length)
        own = field[:, position, self.truth.sequences]  # (b, k, l)
        return self.truth.log_weights.log_softmax(0) + own.sum(dim=-1), own

    def log_marginal(self, tokens: Tensor, t: Tensor) -> Tensor:
        """Return log q_t of noisy sequences."""
        return self.joint(tokens, t)[0].logsumexp(dim=-1)

    def counted(self, exact: Callable[[Tensor, Tensor], Tensor], x: Tensor, t: Tensor) -> Tensor:
        """Record the call, and return exact(x, t)."""
        self.sequences += len(x)
        self.told.append(t)
        if len(t) < 100 or (t != t[0]).any():
            return exact(x, t)
        base = (self.vocab_size + 1) ** torch.arange(x.shape[1])
        codes, which = ((x + 1) * base).sum(dim=1).unique(return_inverse=True)
        distinct = codes.unsqueeze(1) // base % (self.vocab_size + 1) - 1
        return exact(distinct, t[: len(distinct)])[which]


class ExactTimed(Process):
    """x̂_0 of every position given all the others: the optimum of the kernel's posterior."""

    def at_time(self, tokens: Tensor, t: Tensor) -> Tensor:
        return self.counted(self._clean, tokens, t)

    def _clean(self, tokens: Tensor, t: Tensor) -> Tensor:
        total, own = self.joint(tokens, t)
        others = total.unsqueeze(-1) - own  # (b, k, l), without the position's own token
        if self.kernel.noise == "absorbing":  # a sequence that its own token rules out: -inf + inf
            others = self._without_own(tokens, t)
        onto = torch.nn.functional.one_hot(self.truth.sequences, self.vocab_size)  # (k, l, v)
        p = (others - others.amax(dim=1, keepdim=True)).exp()
        return torch.einsum("bkl,klv->blv", p, onto.to(p)).clamp(min=1e-300).log()

    def _without_own(self, tokens: Tensor, t: Tensor) -> Tensor:
        field = self.kernel.log_likelihood(tokens, self.alpha(t.double()))
        own = field[:, torch.arange(self.truth.length), self.truth.sequences]
        rest = [own[..., [j for j in range(own.shape[-1]) if j != i]].sum(-1)
                for i in range(own.shape[-1])]  # fmt: skip
        return self.truth.log_weights.log_softmax(0).unsqueeze(-1) + torch.stack(rest, dim=-1)


class ExactScored(Process):
    """Exact ratios of the marginals q_t of texts that differ in one token."""

    def log_score(self, tokens: Tensor, t: Tensor) -> Tensor:
        return self.counted(self._ratios, tokens, t)

    def _ratios(self, tokens: Tensor, t: Tensor) -> Tensor:
        b, length = tokens.shape
        own = self.log_marginal(tokens, t)
        ratios = torch.zeros(b, length, self.vocab_size, dtype=torch.float64)
        for i in range(length):
            for v in range(self.vocab_size):
                other = tokens.clone()
                other[:, i] = v
                ratios[:, i, v] = self.log_marginal(other, t) - own
        return ratios


def enumerated(truth: Oracle) -> Enumerated:
    """List the sequences of an oracle."""
    return truth if isinstance(truth, Enumerated) else truth.enumerated()  # type: ignore[attr-defined]


def every(vocab_size: int, length: int) -> Tensor:
    """List all texts of a length."""
    return torch.tensor(list(itertools.product(range(vocab_size), repeat=length)))


def double(*values: float) -> Tensor:
    """Write a vector of double precision."""
    return torch.tensor(values, dtype=torch.float64)


Exact = Callable[[Oracle], Process]
