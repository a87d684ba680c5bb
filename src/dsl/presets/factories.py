"""The samplers that have a name: one function each, with the settings the paper reports.

Where the paper contradicts itself both values have a name.
"""

from __future__ import annotations

import math
from typing import Literal

from dsl.alpha import ScheduleName
from dsl.alpha import schedule as named
from dsl.sampling.ancestral import Ancestral
from dsl.sampling.categorical import Draw
from dsl.sampling.clocked import ClockedAncestral
from dsl.sampling.clocked_ode import ClockedOde
from dsl.sampling.confident import Confident, Sureness
from dsl.sampling.corrector import Corrector
from dsl.sampling.edm import Edm
from dsl.sampling.localize import Localize
from dsl.sampling.mixed import MixedAncestral
from dsl.sampling.parallel import Parallel
from dsl.sampling.prism import Prism, PrismLoop
from dsl.sampling.psi import Psi
from dsl.sampling.ratios import Euler, Tweedie
from dsl.sampling.refine import Commit, Refine
from dsl.sampling.remask import Cap, Confidence, ForwardBackward, Rescale
from dsl.sampling.reveal import FirstHitting, Reveal
from dsl.sampling.sampler import Chain, Sampler
from dsl.sampling.schedule import Loop
from dsl.sampling.timed import TimedAncestral

SIGMA_SWITCH = {
    # Table hybrid_full, the more detailed of the two; the short table has .46 for (32, 16).
    (16, 16): 0.49,
    (16, 32): 0.49,
    (16, 48): 0.49,
    (32, 16): 0.45,
    (32, 32): 0.46,
    (32, 48): 0.46,
}

ETA_CAP = {
    # Equation eta_cap_values of C.4. The rewrite counts the paper reports fit these values only:
    # η α_on T/2 = .576, .922, 1.613, 1.843 remasks per token.
    "equation": {128: 0.010, 256: 0.008, 512: 0.007, 1024: 0.004},
    # Tables owt_sampler_hparams and rewrite_stats, which differ at 512 and 1024.
    "table": {128: 0.010, 256: 0.008, 512: 0.008, 1024: 0.002},
}


def eta_cap(steps: int, source: Literal["equation", "table"] = "equation") -> float:
    """Return η_cap(T): the paper's value, between its budgets a geometric interpolation."""
    known = ETA_CAP[source]
    if steps in known:
        return known[steps]
    budgets = sorted(known)
    if steps <= budgets[0] or steps >= budgets[-1]:
        return known[budgets[0] if steps <= budgets[0] else budgets[-1]]
    right = next(budget for budget in budgets if budget > steps)
    left = budgets[budgets.index(right) - 1]
    weight = math.log(steps / left) / math.log(right / left)
    return float(known[left] ** (1 - weight) * known[right] ** weight)


def mdlm(
    steps: int,
    *,
    refresh_unmasked: bool = False,
    schedule: ScheduleName = "linear",
    power: float = 2.0,
    draw: Draw = Draw(),
) -> Sampler:
    """MDLM: reveal each token once, at a random time; MD4's grid is schedule=cosine.

    The power is the polynomial schedule's.
    """
    alpha = named(schedule, power)
    return Ancestral(steps, alpha, draw=draw, refresh_unmasked=refresh_unmasked)


def fb(steps: int, *, official: bool = False, draw: Draw = Draw()) -> Sampler:
    """MDLM with forward-backward correction; `official` remasks in the last step too."""
    return Ancestral(steps, remask=ForwardBackward(official), draw=draw)


def dfm(steps: int, *, official: bool = False, draw: Draw = Draw()) -> Sampler:
    """MDLM with the discrete-flow-matching corrector; `official` stops at t = 1/T."""
    return Corrector(steps, draw, official)


def remdm_cap(
    steps: int, *, eta: float = 0.008, refresh_unmasked: bool = False, draw: Draw = Draw()
) -> Sampler:
    """ReMDM with a capped remask probability; eta is the official script's."""
    return Ancestral(steps, remask=Cap(eta), draw=draw, refresh_unmasked=refresh_unmasked)


def remdm_rescale(
    steps: int, *, eta: float = 0.015, refresh_unmasked: bool = False, draw: Draw = Draw()
) -> Sampler:
    """ReMDM with a rescaled remask probability; eta is the official script's."""
    return Ancestral(steps, remask=Rescale(eta), draw=draw, refresh_unmasked=refresh_unmasked)


def remdm_conf(steps: int, *, refresh_unmasked: bool = False, draw: Draw = Draw()) -> Sampler:
    """ReMDM that remasks the tokens drawn least surely."""
    return Ancestral(steps, remask=Confidence(), draw=draw, refresh_unmasked=refresh_unmasked)


def remdm_loop(
    steps: int,
    *,
    eta: float | None = None,
    eta_source: Literal["equation", "table"] = "equation",
    t_on: float = 0.55,
    t_off: float = 0.05,
    alpha_on: float = 0.9,
    refresh_unmasked: bool = False,
    draw: Draw = Draw(),
) -> Sampler:
    """ReMDM-loop: reveal 90%, stay there remasking, then finish; eta defaults to η_cap(T).

    A step finishes if it begins at t <= t_off. The last one begins at 1/T, so with t_off = 0.05
    up to T = 20 none does, and what the loop leaves masked is revealed greedily.
    """
    rule = Cap(eta_cap(steps, eta_source) if eta is None else eta)
    return Ancestral(steps, Loop(t_on, t_off, alpha_on), rule, draw, refresh_unmasked)


def first_hitting(steps: int | None = None, *, draw: Draw = Draw()) -> Sampler:
    """Draw the reveal times up front: MDLM in T steps; without T, one token at a time."""
    return Reveal(draw=draw) if steps is None else FirstHitting(steps, draw)


def roar(*, shared: bool = False, draw: Draw = Draw()) -> Sampler:
    """Random-order autoregression; `shared` takes one order for the batch, as the paper did."""
    return Reveal("shared" if shared else "random", draw)


def confident(steps: int, *, order: Sureness = "probability", draw: Draw = Draw()) -> Sampler:
    """Reveal what the network is surest of first, an equal share in every step."""
    return Confident(steps, order, draw)


def causal(*, draw: Draw = Draw()) -> Sampler:
    """Left-to-right autoregression."""
    return Reveal("causal", draw)


def localize(
    steps: int,
    *,
    snr_max: float = 40.0,
    power: float = 2.0,
    noise: float = 1.0,
    draw: Draw = Draw(),
) -> Sampler:
    """Euler-Maruyama on the unconditional SDE, then one read-out."""
    return Chain((Localize(steps, snr_max, power, noise), Commit(draw)))


def edm(
    steps: int,
    *,
    sigma_max: float = 80.0,
    sigma_min: float = 0.1,
    rho: float = 7.0,
    heun: bool = True,
    churn: float = 0.0,
    churn_means: Literal["total", "factor"] = "total",
    start: Literal["zero", "mean"] = "zero",
    draw: Draw = Draw(),
) -> Sampler:
    """EDM's probability-flow ODE, then one read-out."""
    walk = Edm(steps, sigma_max, sigma_min, rho, heun, churn, churn_means, start=start)
    return Chain((walk, Commit(draw)))


def hybrid(
    steps: tuple[int, int],
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
    continuous, discrete = steps
    if sigma_switch is None:
        sigma_switch = SIGMA_SWITCH.get((continuous, discrete), 0.47)
    walk = Edm(continuous, sigma_max, sigma_switch, rho, heun, churn, churn_means)
    return Chain((walk, Commit(draw), Refine(discrete, draw, r_min, r_max, r_end)))


def vp(steps: int, *, power: float = 2.0, draw: Draw = Draw()) -> Sampler:
    """VDM's ancestral sampler, for networks with a clock only."""
    return ClockedAncestral(steps, power, draw)


def vp_ode(steps: int, *, rho: float = 7.0, heun: bool = True, draw: Draw = Draw()) -> Sampler:
    """The probability-flow ODE of networks with a clock; T - 1 steps and a read-out."""
    return ClockedOde(steps, rho, heun, draw)


def timed(steps: int, *, draw: Draw = Draw()) -> Sampler:
    """Discrete diffusion's ancestral sampler, for networks that are told the time."""
    return TimedAncestral(steps, draw)


def ardm(steps: int, *, draw: Draw = Draw()) -> Sampler:
    """ARDM's parallel sampler: a random order in T steps, planned by the network's own losses."""
    return Parallel(steps, draw)


def prism(steps: int, *, eta: float = 0.01, on: float = 0.5, draw: Draw = Draw()) -> Sampler:
    """PRISM: reveal at random, and in the second half take back what is rated worst.

    eta and on are the official script's; eta = 0 takes nothing back.
    """
    return Prism(steps, draw, eta, on)


def prism_loop(
    steps: int,
    *,
    eta: float = 0.01,
    on: float = 0.5,
    loop: float = 0.5,
    share: float = 0.1,
    draw: Draw = Draw(),
) -> Sampler:
    """PRISM in all but the share `loop` of the steps, in which the text is mended.

    Of the text, the share that is rated worst is masked and filled; 0.1 is ReMDM-loop's 1 - α_on.
    """
    if not 0 <= loop < 1:
        raise ValueError(f"loop must lie in [0, 1), got {loop}")
    mending = int(loop * steps)
    walk = Prism(steps - mending, draw, eta, on)
    return Chain((walk, PrismLoop(mending, draw, share))) if mending else walk


def tweedie(steps: int, *, draw: Draw = Draw()) -> Sampler:
    """SEDD's analytic sampler, for networks of score ratios."""
    return Tweedie(steps, draw)


def euler(steps: int, *, draw: Draw = Draw()) -> Sampler:
    """Euler steps of the reverse rates, for networks of score ratios."""
    return Euler(steps, draw)


def candi(steps: int, *, draw: Draw = Draw()) -> Sampler:
    """CANDI's ancestral sampler, for networks of clean and noisy tokens."""
    return MixedAncestral(steps, draw)


def duo(steps: int, *, greedy: bool = False, draw: Draw = Draw()) -> Sampler:
    """DUO's ancestral sampler of uniform noise; `greedy` is its tail, which draws no last step."""
    return Psi(steps, greedy=greedy, draw=draw)


def psi(
    steps: int,
    *,
    kappa: float = 0.95,
    t_on: float = 0.5,
    t_off: float = 0.1,
    greedy: bool = False,
    draw: Draw = Draw(),
) -> Sampler:
    """DUO's Ψ-sampler; kappa and where it acts are those of the official script for images."""
    return Psi(steps, kappa, t_on, t_off, greedy, draw)
