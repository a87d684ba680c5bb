"""Hints about one position: unknown, known, seen at an SNR, read with a confidence, one of several.

Each hint is a log-likelihood over the vocabulary. An impossible hint raises an error on
construction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from dsl._util.validate import finite_number, probability, sequence, whole_number
from dsl.core.denoiser import require_tokens
from dsl.core.types import Codebook

LEFT_OVER = 1e-9
"""A remaining probability below this is rounding error."""


@dataclass(frozen=True)
class Unknown:
    """Nothing is known: [MASK]."""

    def log_likelihood(self, codebook: Codebook) -> Float[Tensor, "v"]:
        """Return ℓ = 0."""
        return codebook.new_zeros(codebook.shape[0])

    def allows(self, token: int) -> bool:
        """Whether the token may be this one: it may be any."""
        return True


@dataclass(frozen=True)
class Known:
    """The token is this one, for certain."""

    token: int

    def __post_init__(self) -> None:
        whole_number("token", self.token, least=0)

    def log_likelihood(self, codebook: Codebook) -> Float[Tensor, "v"]:
        """Return 0 for the token and -inf for all others."""
        return Allowed((self.token,)).log_likelihood(codebook)

    def allows(self, token: int) -> bool:
        """Whether the token may be this one."""
        return token == self.token


@dataclass(frozen=True)
class Observed:
    """The token was seen through the channel at this SNR, without noise: e = γ x_v."""

    token: int
    snr: float

    def __post_init__(self) -> None:
        whole_number("token", self.token, least=0)
        finite_number("snr", self.snr, least=0.0)

    def log_likelihood(self, codebook: Codebook) -> Float[Tensor, "v"]:
        """Return γ ⟨x_token, x_v⟩."""
        require_tokens(torch.tensor(self.token), len(codebook))
        return self.snr * codebook @ codebook[self.token]

    def allows(self, token: int) -> bool:
        """Whether the token may be this one: nothing is ruled out at a finite SNR."""
        return True


@dataclass(frozen=True)
class Confident:
    """A recogniser read this token and is right with this probability."""

    token: int
    probability: float

    def __post_init__(self) -> None:
        whole_number("token", self.token, least=0)
        probability("probability", self.probability)

    def log_likelihood(self, codebook: Codebook) -> Float[Tensor, "v"]:
        """Return ln p for the token and an equal share of 1 - p for every other."""
        return NBest({self.token: self.probability}).log_likelihood(codebook)

    def allows(self, token: int) -> bool:
        """Whether the token may be this one."""
        return NBest({self.token: self.probability}).allows(token)


@dataclass(frozen=True)
class NBest:
    """Candidates with probabilities; the remaining mass is shared by all other tokens."""

    probabilities: Mapping[int, float]

    def __post_init__(self) -> None:
        if not isinstance(self.probabilities, Mapping):
            raise ValueError(
                f"probabilities must map tokens to probabilities, got {self.probabilities!r}"
            )
        for token, share in self.probabilities.items():
            whole_number("token", token, least=0)
            probability(f"the probability of token {token}", share)
        total = math.fsum(self.probabilities.values())
        if total > 1 + 1e-6:
            raise ValueError(
                "candidate probabilities must sum to at most 1, "
                f"got {dict(self.probabilities)} with sum {total:g}"
            )

    @property
    def rest(self) -> float:
        """The probability mass not assigned to candidates."""
        left = 1 - math.fsum(self.probabilities.values())
        return left if left > LEFT_OVER else 0.0

    def log_likelihood(self, codebook: Codebook) -> Float[Tensor, "v"]:
        """Return the log of the completed distribution; -inf where no mass remains."""
        require_tokens(torch.tensor(list(self.probabilities)), len(codebook))
        others = codebook.shape[0] - len(self.probabilities)
        p = codebook.new_full((codebook.shape[0],), self.rest / others if others else 0.0)
        for token, share in self.probabilities.items():
            p[token] = share
        return p.log()

    def allows(self, token: int) -> bool:
        """Whether the token may be this one."""
        return self.probabilities.get(token, self.rest) > 0


@dataclass(frozen=True)
class Allowed:
    """The token is one of these."""

    tokens: Sequence[int]

    def __post_init__(self) -> None:
        if not sequence("tokens", self.tokens, "tokens"):
            raise ValueError("an allowed set must contain at least one token, got none")
        for token in self.tokens:
            whole_number("token", token, least=0)

    def log_likelihood(self, codebook: Codebook) -> Float[Tensor, "v"]:
        """Return 0 for the allowed tokens and -inf for all others."""
        require_tokens(torch.tensor(self.tokens), len(codebook))
        log_likelihood = codebook.new_full((codebook.shape[0],), -torch.inf)
        log_likelihood[list(self.tokens)] = 0.0
        return log_likelihood

    def allows(self, token: int) -> bool:
        """Whether the token may be this one."""
        return token in self.tokens


Hint = Unknown | Known | Observed | Confident | NBest | Allowed
"""A hint about one position."""

Hints = Sequence[Hint | Sequence[Hint]]
"""Hints about each position of a sequence; several hints about one position add up."""
