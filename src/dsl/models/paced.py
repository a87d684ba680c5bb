"""Masks that take each token at a pace of its own, which is learned: GenMD4's process."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dsl.kernel import Kernel, one_hot
from dsl.models.timed import TimedModel, TimedShape
from dsl.streams import Randomness, uniform
from dsl.types import MASK, Logits, Tokens


@dataclass(frozen=True, eq=False)
class PacedKernel(Kernel):
    """Absorbing noise in which token v is left alone with probability α_v = 1 - (1 - α)^{w_v}.

    With the linear schedule that is GenMD4's 1 - t^{w_v}: tokens of small w are forgotten first,
    and so written last.
    """

    pace: Float[Tensor, "v"]
    """w, positive."""

    def corrupt(
        self, tokens: Tokens, alpha: Float[Tensor, "b"], *, generator: Randomness = None
    ) -> Tokens:
        """Draw x_t given x_0, a sequence at its own α."""
        gone = (1 - alpha).unsqueeze(1) ** self.pace.to(alpha)[tokens]
        u = uniform(tokens.shape, generator=generator, device=tokens.device)
        return tokens.masked_fill(u >= 1 - gone, MASK)

    def log_likelihood(self, noisy: Tokens, alpha: Float[Tensor, "b"]) -> Logits:
        """Return log q(x_t | x_0 = v) of every token v."""
        gone = (1 - alpha).view(-1, 1, 1) ** self.pace.to(alpha)
        own = one_hot(noisy.clamp(min=0), self.vocab_size, alpha.dtype)
        return torch.where((noisy == MASK).unsqueeze(-1), gone, (1 - gone) * own).log()

    def posterior(
        self,
        noisy: Tokens,
        clean: Float[Tensor, "b l v"],
        alpha_t: Float[Tensor, "b"],
        alpha_s: Float[Tensor, "b"],
    ) -> Float[Tensor, "b l states"]:
        """Return q(x_s | x_t, x̂_0) for s < t: a mask stays one if its token would have.

        x̂_0 is what *all* positions tell of the clean token, its own mask included: a mask says
        that the token is one of those that are forgotten early.
        """
        # (1 - α_v(s)) / (1 - α_v(t)), how many of the masks of t are masks at s
        share = ((1 - alpha_s) / (1 - alpha_t)).view(-1, 1, 1) ** self.pace.to(clean)
        still = (share * clean).sum(dim=-1, keepdim=True)
        hidden = torch.cat([(1 - share) * clean, still], dim=-1)
        masked = (noisy == MASK).unsqueeze(-1)
        return torch.where(masked, hidden, one_hot(noisy.clamp(min=0), self.states, clean.dtype))


class PacedModel(TimedModel):
    """A network that is told the time, and a pace for each token of its vocabulary.

    The time is needed: what a mask says of its token depends on it.
    """

    def __init__(self, config: TimedShape) -> None:
        super().__init__(config)
        one = math.log(math.e - 1)  # softplus of it is 1: MD4's process, to begin with
        self.raw_pace = nn.Parameter(torch.full((config.vocab_size,), one))

    @property
    def pace(self) -> Float[Tensor, "v"]:
        """The learned w of every token."""
        return nn.functional.softplus(self.raw_pace.float())

    @property
    def kernel(self) -> Kernel:
        """What becomes of a token, at its pace."""
        return PacedKernel("absorbing", self.vocab_size, self.pace.detach())


def paces(kernel: Kernel) -> Float[Tensor, "v"]:
    """Return w of every token: 1 where the kernel makes no difference between them."""
    if isinstance(kernel, PacedKernel):
        return kernel.pace
    return torch.ones(kernel.vocab_size)
