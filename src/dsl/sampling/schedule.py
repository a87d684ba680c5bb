"""The share α of revealed tokens along a masked path, and where remasking is on."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch

from dsl.alpha import Named

END = 1e-5
"""Where the time grid ends; what is still masked there is revealed by noise removal."""


@dataclass(frozen=True)
class Interval:
    """One step of a masked path: α rises from alpha_t to alpha_s."""

    alpha_t: float
    alpha_s: float
    remask: bool = True
    """Whether the remask rule is in force."""


@dataclass(frozen=True)
class Loop:
    """ReMDM-loop: reveal up to α_on, stay there while remasking, then reveal the rest.

    With the default window, 45% of the steps reveal, 50% loop and 5% finish.
    """

    t_on: float = 0.55
    t_off: float = 0.05
    alpha_on: float = 0.9

    def __post_init__(self) -> None:
        if not (0 < self.t_off < self.t_on < 1 and 0 < self.alpha_on < 1):
            raise ValueError(
                "a loop needs 0 < t_off < t_on < 1 and 0 < alpha_on < 1, "
                f"got t_off={self.t_off}, t_on={self.t_on}, alpha_on={self.alpha_on}"
            )

    def interval(self, t: float, s: float) -> Interval:
        """Return α at both ends of a step, by the phase its beginning lies in."""
        if t > self.t_on:
            slope = self.alpha_on / (1 - self.t_on)
            return Interval((1 - t) * slope, (1 - s) * slope, remask=False)
        if t > self.t_off:
            return Interval(self.alpha_on, self.alpha_on)
        slope = (1 - self.alpha_on) / self.t_off
        return Interval(1 - t * slope, 1 - s * slope, remask=False)


Alpha = Named | Loop


def intervals(alpha: Alpha, steps: int) -> list[Interval]:
    """Cut [1, 1e-5] into equal steps, as MDLM and ReMDM do."""
    dt = (1 - END) / steps
    times = [1 - k * dt for k in range(steps + 1)]
    if isinstance(alpha, Loop):
        return [alpha.interval(t, s) for t, s in pairwise(times)]
    shares = alpha(torch.tensor(times, dtype=torch.float64)).tolist()
    return [Interval(alpha_t, alpha_s) for alpha_t, alpha_s in pairwise(shares)]
