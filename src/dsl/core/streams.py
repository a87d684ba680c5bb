"""Random numbers: one generator for a batch, or one stream for each of its sequences.

A sequence that owns its stream draws the same numbers whatever batch it sits in, however many
processes share the job, and whichever of its neighbours have already finished.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Streams:
    """One generator per sequence of the batch, in the order of the batch."""

    generators: tuple[torch.Generator, ...]
    shared: torch.Generator | None = None
    """A generator for draws shared by the whole batch, on every rank."""

    @classmethod
    def derive(
        cls, seed: int, indices: Iterable[int], *, device: str | torch.device = "cpu"
    ) -> Streams:
        """Derive the streams of the sequences with these indices in the whole job."""
        return cls(tuple(stream(seed, index, device=device) for index in indices))

    def take(self, rows: Iterable[int]) -> Streams:
        """Keep the streams of these rows of the batch."""
        return Streams(tuple(self.generators[row] for row in rows), self.shared)

    def __len__(self) -> int:
        return len(self.generators)


Randomness = torch.Generator | Streams | None
"""The type of every `generator=` argument; None is torch's global generator."""

Device = torch.device | None
"""The type of every `device=` argument; None is the generator's device."""


def stream(seed: int, *path: int, device: str | torch.device = "cpu") -> torch.Generator:
    """Derive a generator from a seed and a path of indices, independent of all other paths.

    NumPy's SeedSequence does the mixing, because seeds that differ in one bit must not give
    correlated streams.
    """
    if seed < 0 or any(index < 0 for index in path):
        raise ValueError(f"a seed and its indices must be non-negative, got {(seed, *path)}")
    # As spawn keys, indices cannot be confused with the seed or its padding.
    (state,) = np.random.SeedSequence(seed, spawn_key=path).generate_state(1, np.uint64)
    # manual_seed takes a signed integer on some devices: 63 bits are safe everywhere.
    return torch.Generator(device).manual_seed(int(state) >> 1)


def uniform(
    shape: Sequence[int],
    *,
    generator: Randomness = None,
    dtype: torch.dtype | None = None,
    device: Device = None,
) -> Tensor:
    """Draw from U[0, 1); the first axis is the batch."""
    return _draw(torch.rand, shape, generator, dtype, device)


def normal(
    shape: Sequence[int],
    *,
    generator: Randomness = None,
    dtype: torch.dtype | None = None,
    device: Device = None,
) -> Tensor:
    """Draw from N(0, 1); the first axis is the batch."""
    return _draw(torch.randn, shape, generator, dtype, device)


def permutation(
    shape: tuple[int, int], *, generator: Randomness = None, device: Device = None
) -> Tensor:
    """Draw one uniformly random order of l positions for each of b sequences."""
    # float64 keys: ties, which would favour the left, have probability below 1e-10 at l = 1024
    return uniform(shape, generator=generator, dtype=torch.float64, device=device).argsort(dim=1)


def categorical(p: Float[Tensor, "*n v"], u: Float[Tensor, "*n"]) -> Int[Tensor, "*n"]:
    """Invert the distribution of each row at a uniform number; entries of mass 0 are never drawn.

    The rows need not sum to one.
    """
    below = p.cumsum(dim=-1)
    total = below[..., -1:]
    # u · total may round up to the total, which lies beyond every entry.
    target = (u.unsqueeze(-1) * total).minimum(total.nextafter(torch.zeros_like(total)))
    return torch.searchsorted(below, target, right=True).squeeze(-1)


def _draw(
    draw: Callable[..., Tensor],
    shape: Sequence[int],
    generator: Randomness,
    dtype: torch.dtype | None,
    device: Device,
) -> Tensor:
    if generator is None:
        return draw(tuple(shape), dtype=dtype, device=device)
    if isinstance(generator, torch.Generator):
        return _from(generator, draw, shape, dtype, device)
    if len(generator) != shape[0]:
        raise ValueError(f"expected one stream per sequence, {shape[0]}, got {len(generator)}")
    rows = [_from(own, draw, shape[1:], dtype, device) for own in generator.generators]
    return torch.stack(rows) if rows else torch.empty(tuple(shape), dtype=dtype, device=device)


def _from(
    generator: torch.Generator,
    draw: Callable[..., Tensor],
    shape: Sequence[int],
    dtype: torch.dtype | None,
    device: Device,
) -> Tensor:
    """Draw on the generator's device, so that a CPU generator works for tensors anywhere."""
    drawn = draw(tuple(shape), generator=generator, dtype=dtype, device=generator.device)
    return drawn if device is None else drawn.to(device)
