"""The hybrid path: continuous diffusion first, then masked refinement (C.6)."""

from __future__ import annotations

from typing import Literal

from dsl.samplers.base import Chain, Sampler
from dsl.samplers.draw import Draw
from dsl.samplers.edm import Edm
from dsl.samplers.refine import Commit, Refine

SIGMA_SWITCH = {
    # Table hybrid_full, the more detailed of the two; the short table has .46 for (32, 16).
    (16, 16): 0.49,
    (16, 32): 0.49,
    (16, 48): 0.49,
    (32, 16): 0.45,
    (32, 32): 0.46,
    (32, 48): 0.46,
}


def hybrid(
    num_steps: tuple[int, int],
    *,
    sigma_switch: float | None = None,
    sigma_max: float = 10.0,
    rho: float = 7.0,
    heun: bool = True,
    churn: float = 1.41,
    churn_means: Literal["total", "factor"] = "total",
    r_min: float = 0.2,
    r_max: float = 0.8,
    r_end: float = 0.0,
    draw: Draw = Draw(temperature=0.8),
) -> Sampler:
    """Continuous to σ_switch, commit, then refine the uncertain tokens (C.6).

    σ_switch is the paper's for its six budgets and 0.47, between them, for any other.
    """
    continuous, discrete = num_steps
    if sigma_switch is None:
        sigma_switch = SIGMA_SWITCH.get((continuous, discrete), 0.47)
    walk = Edm(continuous, sigma_max, sigma_switch, rho, heun, churn, churn_means)
    return Chain((walk, Commit(draw), Refine(discrete, draw, r_min, r_max, r_end)))
