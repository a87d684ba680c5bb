"""Networks over tokens with a time input: protocol, network, calibration levels and sampler.

D3PM, multinomial diffusion, MD4, GenMD4 and DUO use all of it, SEDD and CANDI parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.apps.zoo.kernel import Kernel, Noise
from dsl.core import (
    MASK,
    Logits,
    Mask,
    Network,
    Randomness,
    Schedule,
    ScheduleName,
    Streams,
    Tokens,
    require_tokens,
    schedule,
    uniform,
)
from dsl.families import Family, Level
from dsl.models import MDLM, NetworkShape, ShapedNetwork
from dsl.samplers import Draw, State, require_steps

TICKS = 1000.0
"""The time input at t = 1; its sinusoids have periods from 6 to 60,000."""


class Process(Network, Protocol):
    """A network that reverses a discrete process."""

    @property
    def kernel(self) -> Kernel:
        """The transition kernel of the process."""
        ...

    @property
    def alpha(self) -> Schedule:
        """The schedule: the share of tokens still clean at a time."""
        ...


@runtime_checkable
class Timed(Process, Protocol):
    """A network over tokens with a time input: discrete and uniform-state diffusion."""

    def at_time(self, tokens: Tokens, t: Float[Tensor, "b"]) -> Logits:
        """Return logits of x̂_0 at every position, at the given time of each sequence.

        x̂_0 is the input of the kernel's posterior: the clean token given all *other* positions.
        The kernel adds the evidence of the position's own noisy token.
        """
        ...


@runtime_checkable
class Replaced(Timed, Protocol):
    """A timed network for uniform noise: any input token may be wrong."""


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
        require_clock(self.cond_dim, self.llama)
        schedule(self.schedule, self.power)  # raises for an invalid power


def require_clock(cond_dim: int, llama: object) -> None:
    """Raise ValueError for llama blocks, which have no time input, and for one of no width."""
    if llama is not None:
        raise ValueError("this family needs a time input, and llama blocks have none")
    if cond_dim < 1:
        raise ValueError(f"cond_dim must be at least 1, got {cond_dim}")


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
class AtTime:
    """Tokens corrupted by the network's own process up to time t."""

    t: float

    @property
    def label(self) -> str:
        """The time."""
        return f"t={self.t:g}"

    def ask(
        self, network: Any, tokens: Tokens, *, generator: Streams
    ) -> tuple[Float[Tensor, "n v"], Mask]:
        """Corrupt the text and predict each token from all the others."""
        times = torch.full((len(tokens),), self.t, device=tokens.device)
        noisy = network.kernel.corrupt(tokens, network.alpha(times), generator=generator)
        at = network.kernel.doubtful(noisy)
        return network.at_time(noisy, times)[at], at


class TimedFamily(Family):
    """The base class of families with a time input."""

    protocol: ClassVar[type] = Timed
    llama = False
    times: ClassVar[Sequence[float]] = (0.1, 0.3, 0.5, 0.7, 0.9)
    """Times at which calibration is measured."""
    level: ClassVar[type[AtTime]] = AtTime

    def levels(self, network: Any) -> Sequence[Level]:
        """Calibrate at a few times."""
        return [self.level(t) for t in self.times]


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
        state = noised(denoiser, start, generator) if start.step == 0 else start
        for k in range(start.step, self.num_steps):
            t, s = 1 - k / self.num_steps, 1 - (k + 1) / self.num_steps
            live = unfinished(denoiser, state)
            logits, state = answered(denoiser, denoiser.at_time, state, t, live)
            p = self.posterior(denoiser, state.tokens, logits, t, s)
            state = replace(drawn(state, p, denoiser.kernel, live, generator), step=k + 1)
            yield state

    def posterior(
        self, denoiser: Timed, noisy: Tokens, logits: Logits, t: float, s: float
    ) -> Float[Tensor, "b l states"]:
        """Return q(x_s | x_t, x̂_0) at every position."""
        clean, alpha_t, alpha_s = at_step(denoiser, logits, self.draw, t, s)
        return denoiser.kernel.posterior(noisy, clean, alpha_t, alpha_s)


def at_step(
    denoiser: Timed, logits: Logits, draw: Draw, t: float, s: float
) -> tuple[Float[Tensor, "b l v"], Float[Tensor, "b"], Float[Tensor, "b"]]:
    """Return x̂_0, sharpened by `draw`, and α_t and α_s of each sequence."""
    b, length, v = logits.shape
    clean = draw.probabilities(logits.flatten(0, 1)).reshape(b, length, v)
    alpha_t, alpha_s = denoiser.alpha(clean.new_tensor([t, s])).double().unbind()
    return clean, alpha_t.expand(b), alpha_s.expand(b)


def noised(denoiser: Process, state: State, generator: Randomness) -> State:
    """Replace free positions by pure noise."""
    shape, device = state.tokens.shape, state.tokens.device
    noise = denoiser.kernel.pure(tuple(shape), generator=generator, device=device)
    return replace(state, tokens=torch.where(state.free, noise, state.tokens))


def unfinished(denoiser: Process, state: State) -> Mask:
    """Return the positions that a step may still change; revealed tokens are final."""
    return state.free & denoiser.kernel.doubtful(state.tokens)


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
