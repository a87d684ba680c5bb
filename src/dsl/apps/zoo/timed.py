"""The ancestral sampler of discrete diffusion: from noise through q(x_s | x_t, x̂_0) to tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.apps.zoo.kernel import Kernel, Noise
from dsl.apps.zoo.protocols import Scored, Timed
from dsl.core import (
    MASK,
    Logits,
    Mask,
    Network,
    Randomness,
    Schedule,
    ScheduleName,
    Tokens,
    require_tokens,
    schedule,
    uniform,
)
from dsl.models import MDLM, NetworkShape, ShapedNetwork
from dsl.samplers import Draw, State, require_steps

TICKS = 1000.0
"""The time input at t = 1; its sinusoids have periods from 6 to 60,000."""


@dataclass(frozen=True)
class TimedShape(NetworkShape):
    """The shape of a network with a time input."""

    cond_dim: int = 128
    noise: Noise = "absorbing"
    """The noise: masks, or random tokens."""
    schedule: ScheduleName = "linear"
    """How α falls with the time."""
    power: float = 2.0
    """w of the polynomial schedule 1 - t^w."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.llama is not None:
            raise ValueError("llama's blocks read no clock, which this family's network needs")
        if self.cond_dim < 1:
            raise ValueError(f"cond_dim must be at least 1, got {self.cond_dim}")
        schedule(self.schedule, self.power)  # raises for an invalid power


class TimedModel(ShapedNetwork):
    """MDLM's network, tensor for tensor, modulated by the time; [MASK] is its last id."""

    def __init__(self, config: TimedShape) -> None:
        super().__init__(config)
        self.config = config
        rows = config.vocab_size + 1
        self.backbone = MDLM(rows, cond_dim=config.cond_dim, **config.blocks)

    @property
    def kernel(self) -> Kernel:
        """The transition kernel of the process."""
        return Kernel(self.config.noise, self.vocab_size)

    @property
    def alpha(self) -> Schedule:
        """The schedule: the share of tokens still clean at a time."""
        return schedule(self.config.schedule, self.config.power)

    def at_time(self, tokens: Tokens, t: Float[Tensor, "b"]) -> Logits:
        """Return the logits of the real tokens at every position, one time for each sequence."""
        require_tokens(tokens, self.vocab_size, least=MASK)
        ids = tokens.masked_fill(tokens == MASK, self.vocab_size)
        return self._from_rows(self.backbone.vocab_embed(ids), t)

    def _from_rows(self, rows: Float[Tensor, "b l h"], t: Float[Tensor, "b"]) -> Logits:
        """Return the logits of the real tokens, given input embeddings."""
        clock = (TICKS * t).to(next(self.parameters()).dtype)
        features = self.backbone.features(rows, clock)
        return self.backbone.head(features, clock)[..., : self.vocab_size]


@dataclass(frozen=True)
class TimedAncestral:
    """Ancestral sampling of discrete diffusion, for networks with a time input.

    T equal steps of time from pure noise to t = 0, along the network's own process.
    """

    num_steps: int
    draw: Draw = Draw()
    """How x̂_0 is sharpened before the posterior is taken."""
    asks: ClassVar[type] = Timed

    def __post_init__(self) -> None:
        require_steps(self.num_steps)

    def steps(
        self, denoiser: Timed, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Yield the state after every step; under uniform noise it contains no masks."""
        state = start
        if start.step == 0:
            state = noised(denoiser, start, generator)
        for k in range(start.step, self.num_steps):
            t, s = 1 - k / self.num_steps, 1 - (k + 1) / self.num_steps
            live = unfinished(denoiser, state)
            logits, state = ask_at(denoiser, state, t, live)
            state = self._back(denoiser, state, logits, t, s, generator)
            state = replace(state, step=k + 1)
            yield state

    def _back(
        self,
        denoiser: Timed,
        state: State,
        logits: Logits,
        t: float,
        s: float,
        generator: Randomness,
    ) -> State:
        """Draw x_s given x_t and x̂_0."""
        b, length, v = logits.shape
        clean = self.draw.probabilities(logits.flatten(0, 1)).reshape(b, length, v)
        times = clean.new_tensor([t, s])
        alpha_t, alpha_s = denoiser.alpha(times).double().unbind()
        p = denoiser.kernel.posterior(state.tokens, clean, alpha_t.expand(b), alpha_s.expand(b))
        return drawn(state, p, denoiser.kernel, unfinished(denoiser, state), generator)


def noised(denoiser: Timed | Scored, state: State, generator: Randomness) -> State:
    """Replace free positions by pure noise."""
    shape, device = state.tokens.shape, state.tokens.device
    noise = denoiser.kernel.pure(tuple(shape), generator=generator, device=device)
    return replace(state, tokens=torch.where(state.free, noise, state.tokens))


def unfinished(denoiser: Timed | Scored, state: State) -> Mask:
    """Return the positions that a step may still change; revealed tokens are final."""
    return state.free & denoiser.kernel.doubtful(state.tokens)


def ask_at(denoiser: Timed, state: State, t: float, live: Mask) -> tuple[Logits, State]:
    """Return logits of the clean tokens at a time."""
    return answered(denoiser, denoiser.at_time, state, t, live)


def answered(
    denoiser: Network,
    question: Callable[[Tokens, Tensor], Logits],
    state: State,
    t: float,
    live: Mask,
) -> tuple[Logits, State]:
    """Call the network on unfinished sequences, and count the calls.

    Finished sequences get uniform rows, which are not used.
    """
    asked = live.any(dim=1)
    state = replace(state, nfe=state.nfe + asked.long())
    b, length = state.tokens.shape
    logits = torch.zeros(
        b, length, denoiser.vocab_size, dtype=torch.float64, device=state.tokens.device
    )
    if asked.any():
        with torch.no_grad():
            times = torch.full((int(asked.sum()),), t, device=state.tokens.device)
            logits[asked] = question(state.tokens[asked], times).double()
    return logits, state


def drawn(
    state: State, p: Float[Tensor, "b l states"], kernel: Kernel, at: Mask, generator: Randomness
) -> State:
    """Draw the chosen positions from rows over the kernel's states; the last state is the mask."""
    shape, device = state.tokens.shape, state.tokens.device
    u = uniform(shape, generator=generator, dtype=torch.float64, device=device)
    state = state.commit(at, *Draw()(p[at].log(), u[at]))
    return state.remask(at & (state.tokens == kernel.vocab_size))
