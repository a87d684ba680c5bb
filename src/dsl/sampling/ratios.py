"""Samplers that walk score ratios: Tweedie's τ-leaping, and Euler's steps of the reverse rates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dsl.denoiser import Question, Scored
from dsl.kernel import Kernel, one_hot
from dsl.sampling.ancestral import require_steps
from dsl.sampling.categorical import Draw
from dsl.sampling.sampler import SCORE
from dsl.sampling.schedule import END
from dsl.sampling.state import State
from dsl.sampling.timed import answered, drawn, noised, unfinished
from dsl.streams import Randomness
from dsl.types import Logits, Tokens

Chances = Float[Tensor, "b l states"]
Step = Callable[[Scored, Tokens, Logits, float, float], Chances]
"""How x_s is drawn given x_t and its scores: rows over the kernel's states, up to a factor."""
NEVER = -1e4
"""A log-score of which nothing is left, and which is still finite."""


@dataclass(frozen=True)
class Tweedie:
    """T steps that would be exact if positions were independent; the last noise is then removed.

    The network's α must stay above 0 at t = 1, where its scores would vanish.
    """

    num_steps: int
    draw: Draw = Draw()
    """Which token a position jumps to; how often it jumps stays what the scores say."""
    needs: ClassVar[frozenset[Question]] = SCORE

    def __post_init__(self) -> None:
        require_steps(self.num_steps)

    def steps(
        self, denoiser: Scored, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Walk from t = 1 to the end of the grid, then draw clean tokens."""
        return walk(denoiser, start, self.num_steps, tweedie, self.draw, generator)


@dataclass(frozen=True)
class Euler:
    """T steps in which a position jumps with its reverse rate times the step's width."""

    num_steps: int
    draw: Draw = Draw()
    """Which token a position jumps to; how often it jumps stays what the scores say."""
    needs: ClassVar[frozenset[Question]] = SCORE

    def __post_init__(self) -> None:
        require_steps(self.num_steps)

    def steps(
        self, denoiser: Scored, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Walk from t = 1 to the end of the grid, then draw clean tokens by Tweedie's formula."""
        return walk(denoiser, start, self.num_steps, euler, self.draw, generator)


def walk(
    denoiser: Scored,
    start: State,
    num_steps: int,
    step: Step,
    draw: Draw,
    generator: Randomness,
) -> Iterator[State]:
    """Yield the state after every step, and after the removal of what noise is left."""
    state = noised(denoiser, start, generator) if start.step == 0 else start
    times = [1 - (1 - END) * k / num_steps for k in range(num_steps + 1)]
    for k in range(start.step, num_steps + 1):
        last = k == num_steps
        t, s = times[k], 0.0 if last else times[k + 1]
        live = unfinished(denoiser, state)
        log_score, state = answered(denoiser, denoiser.log_score, state, t, live)
        score = sharpened(log_score, state.tokens, draw)
        p = (tweedie if last else step)(denoiser, state.tokens, score, t, s)
        p = p[..., : denoiser.vocab_size] if last else p  # no mask is left
        state = replace(drawn(state, p, denoiser.kernel, live, generator), step=k + 1)
        yield state


def sharpened(log_score: Logits, noisy: Tokens, draw: Draw) -> Logits:
    """Return scores whose sum over other tokens is kept, and distributed as `draw` would."""
    own = visible(noisy, log_score.shape[-1])
    others = log_score.masked_fill(own, NEVER).clamp(min=NEVER)
    p = draw.probabilities(others.flatten(0, 1)).reshape(others.shape)
    return own + others.exp().sum(dim=-1, keepdim=True) * p


def tweedie(denoiser: Scored, noisy: Tokens, score: Logits, t: float, s: float) -> Chances:
    """Return q_s(y)/q_t(x) · q(x_t = x | x_s = y): the scores, the noise from s to t undone.

    Scores that belong to no distribution can make it negative, which is 0.
    """
    times = torch.tensor([t, s], dtype=torch.float64)
    alpha_t, alpha_s = (float(alpha) for alpha in denoiser.alpha(times))
    stay = alpha_t / alpha_s
    if denoiser.kernel.noise == "absorbing":
        return jumps(denoiser.kernel, noisy, (1 / stay - 1) * score)
    v = denoiser.vocab_size
    before = (score - (1 - stay) * score.mean(dim=-1, keepdim=True)) / stay
    reach = stay * one_hot(noisy, v, score.dtype) + (1 - stay) / v
    return before.clamp(min=0) * reach


def euler(denoiser: Scored, noisy: Tokens, score: Logits, t: float, s: float) -> Chances:
    """Return (t - s) σ'(t) Q(y, x) s_y for y ≠ x, and what is left for staying x."""
    now = torch.tensor(t, dtype=torch.float64)
    width = (t - s) * float(-denoiser.alpha.slope(now) / denoiser.alpha(now))
    if denoiser.kernel.noise == "uniform":
        width = width / denoiser.vocab_size
    return jumps(denoiser.kernel, noisy, width * score)


def jumps(kernel: Kernel, noisy: Tokens, chances: Logits) -> Chances:
    """Complete chances to jump by the chance to stay, if any is left.

    A mask stays in a column of its own; the chance of a visible token to become itself is none.
    """
    own = visible(noisy, kernel.vocab_size)
    away = chances.masked_fill(own, 0.0)
    stay = (1 - away.sum(dim=-1, keepdim=True)).clamp(min=0)
    if kernel.noise == "uniform":
        return away + own * stay
    return torch.cat([away, stay], dim=-1)


def visible(noisy: Tokens, vocab_size: int) -> Bool[Tensor, "b l v"]:
    """Return whether v is the token that stands at a position; at a mask none is."""
    return noisy.unsqueeze(-1) == torch.arange(vocab_size, device=noisy.device)
