"""Samplers by name: what the command line accepts, and the settings the paper reports.

A name is `preset`, `preset@T` or, for the hybrid, `hybrid@Tc+Tm`; fields follow after a colon:
`remdm-loop@128:eta=0.02,top_p=0.9`. Where the paper contradicts itself both values have a name.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_type_hints

from dsl.sampling.ancestral import Ancestral
from dsl.sampling.categorical import Draw
from dsl.sampling.clocked import ClockedAncestral
from dsl.sampling.corrector import Corrector
from dsl.sampling.edm import Edm
from dsl.sampling.localize import Localize
from dsl.sampling.refine import Commit, Refine
from dsl.sampling.remask import Cap, Confidence, ForwardBackward, Rescale
from dsl.sampling.reveal import FirstHitting, Reveal
from dsl.sampling.sampler import Chain, Sampler
from dsl.sampling.schedule import Loop

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


def mdlm(steps: int, *, refresh_unmasked: bool = False, draw: Draw = Draw()) -> Sampler:
    """MDLM: reveal each token once, at a random time."""
    return Ancestral(steps, draw=draw, refresh_unmasked=refresh_unmasked)


def fb(steps: int, *, draw: Draw = Draw()) -> Sampler:
    """MDLM with forward-backward correction."""
    return Ancestral(steps, remask=ForwardBackward(), draw=draw)


def dfm(steps: int, *, draw: Draw = Draw()) -> Sampler:
    """MDLM with the discrete-flow-matching corrector."""
    return Corrector(steps, draw)


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
    """ReMDM-loop: reveal 90%, stay there remasking, then finish; eta defaults to η_cap(T)."""
    rule = Cap(eta_cap(steps, eta_source) if eta is None else eta)
    return Ancestral(steps, Loop(t_on, t_off, alpha_on), rule, draw, refresh_unmasked)


def first_hitting(steps: int | None = None, *, draw: Draw = Draw()) -> Sampler:
    """Draw the reveal times up front: MDLM in T steps; without T, one token at a time."""
    return Reveal(draw=draw) if steps is None else FirstHitting(steps, draw)


def roar(*, shared: bool = False, draw: Draw = Draw()) -> Sampler:
    """Random-order autoregression; `shared` takes one order for the batch, as the paper did."""
    return Reveal("shared" if shared else "random", draw)


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
    """VDM's ancestral sampler, for VP networks only."""
    return ClockedAncestral(steps, power, draw)


SIGMA_SWITCH = {
    # Table hybrid_full, the more detailed of the two; the short table has .46 for (32, 16).
    (16, 16): 0.49,
    (16, 32): 0.49,
    (16, 48): 0.49,
    (32, 16): 0.45,
    (32, 32): 0.46,
    (32, 48): 0.46,
}

PRESETS: dict[str, Callable[..., Sampler]] = {
    "mdlm": mdlm,
    "fb": fb,
    "dfm": dfm,
    "remdm-cap": remdm_cap,
    "remdm-rescale": remdm_rescale,
    "remdm-conf": remdm_conf,
    "remdm-loop": remdm_loop,
    "first-hitting": first_hitting,
    "roar": roar,
    "causal": causal,
    "localize": localize,
    "edm": edm,
    "hybrid": hybrid,
    "vp": vp,
}

FORMS = ", ".join(
    name
    if name in ("first-hitting", "roar", "causal")
    else f"{name}@Tc+Tm"
    if name == "hybrid"
    else f"{name}@T"
    for name in PRESETS
)


def sampler(name: str) -> Sampler:
    """Build a sampler from its name, budget and fields: `remdm-loop@128:eta=0.02,top_p=0.9`."""
    head, _, fields = name.partition(":")
    preset, at, budget = head.partition("@")
    if preset not in PRESETS:
        raise ValueError(f"unknown sampler {preset!r}; expected one of {FORMS}")
    build = PRESETS[preset]
    parameters = inspect.signature(build).parameters
    positional = []
    if "steps" in parameters:
        if not at and parameters["steps"].default is inspect.Parameter.empty:
            raise ValueError(f"sampler {preset!r} needs a number of steps; expected one of {FORMS}")
        if at:
            positional = [_budget(preset, budget)]
    elif at:
        raise ValueError(f"sampler {preset!r} takes as many steps as tokens; drop '@{budget}'")
    return build(*positional, **_fields(preset, build, fields))


def _budget(preset: str, text: str) -> int | tuple[int, int]:
    parts = text.split("+")
    wanted = 2 if preset == "hybrid" else 1
    form = "hybrid@16+32" if preset == "hybrid" else f"{preset}@128"
    if all(part.isdecimal() for part in parts) and any(int(part) < 1 for part in parts):
        raise ValueError(f"{preset} makes at least 1 step, got {text!r}; expected e.g. {form}")
    if len(parts) != wanted or not all(part.isdecimal() for part in parts):
        raise ValueError(f"cannot read the steps {text!r} of {preset!r}; expected e.g. {form}")
    return (int(parts[0]), int(parts[1])) if wanted == 2 else int(parts[0])


def _fields(preset: str, build: Callable[..., Sampler], text: str) -> dict[str, Any]:
    own, of_draw = get_type_hints(build), get_type_hints(Draw)
    default_draw: Draw = inspect.signature(build).parameters["draw"].default
    values: dict[str, Any] = {}
    draw = dict(vars(default_draw))
    known = [n for n in own if n not in ("steps", "draw", "return")]
    for item in filter(None, text.split(",")):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or (name not in known and name not in of_draw):
            raise ValueError(
                f"cannot use {item!r} with sampler {preset!r}; "
                f"its fields are {', '.join([*known, *of_draw])}"
            )
        if name in known:
            values[name] = _value(name, own[name], value)
        else:
            draw[name] = _value(name, of_draw[name], value)
    return values | {"draw": Draw(**draw)}


def _value(name: str, kind: Any, text: str) -> Any:
    if bool in (kind, *get_args(kind)):
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise ValueError(f"{name} must be true or false, got {text!r}")
    choices = [choice for choice in get_args(kind) if isinstance(choice, str)]
    if choices:
        if text in choices:
            return text
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {text!r}")
    try:
        return int(text) if int in (kind, *get_args(kind)) else float(text)
    except ValueError:
        raise ValueError(f"{name} must be a number, got {text!r}") from None


@dataclass(frozen=True)
class PaperRow:
    """One cell of a table of the paper: the sampler behind it, and what was reported."""

    table: str
    method: str
    steps: int | tuple[int, int]
    sampler: Sampler
    mauve: float


def paper_rows() -> list[PaperRow]:
    """List the rows of the two OpenWebText tables that a sampler of ours produces.

    All use top-p 0.9, dropping the crossing token. The rows of other models (AR, SEDD, PRISM,
    ADLM) are not here: they need other networks, not other paths.
    """
    p9 = Draw(top_p=0.9)
    budgets = (128, 256, 512, 1024)
    rows = [PaperRow("owt", "DSL-FT + ROAR (naive)", 1024, roar(shared=True, draw=p9), 0.551)]
    reported: dict[str, tuple[Callable[[int], Sampler], tuple[float, ...]]] = {
        "MDLM": (lambda t: mdlm(t, draw=p9), (0.015, 0.023, 0.031, 0.042)),
        "MDLM+FB": (lambda t: fb(t, draw=p9), (0.064, 0.086, 0.103, 0.133)),
        "MDLM+DFM": (lambda t: dfm(t, draw=p9), (0.041, 0.098, 0.168, 0.254)),
        "ReMDM": (_remdm_baseline, (0.057, 0.216, 0.350, 0.403)),
        "DSL-FT + MDLM": (lambda t: mdlm(t, draw=p9), (0.402, 0.481, 0.506, 0.495)),
        "DSL-FT + ReMDM (confidence-based)": (
            lambda t: remdm_conf(t, draw=p9),
            (0.615, 0.622, 0.707, 0.610),
        ),
        "DSL-FT + ReMDM-loop (principled eta_cap)": (
            lambda t: remdm_loop(t, draw=p9),
            (0.639, 0.661, 0.651, 0.722),
        ),
    }
    for method, (build, scores) in reported.items():
        for budget, score in zip(budgets, scores, strict=True):
            rows.append(PaperRow("owt", method, budget, build(budget), score))
    scores = (0.501, 0.662, 0.702, 0.587, 0.589, 0.724)
    for budget_pair, score in zip(SIGMA_SWITCH, scores, strict=True):
        walk = hybrid(budget_pair, draw=Draw(temperature=0.8, top_p=0.9))
        rows.append(PaperRow("hybrid", "DSL-FT + hybrid", budget_pair, walk, score))
    return rows


def _remdm_baseline(steps: int) -> Sampler:
    """Build ReMDM's own rows: cap below 1024 steps, loop with η = 0.02 there."""
    p9 = Draw(top_p=0.9)
    if steps < 1024:
        return remdm_cap(steps, draw=p9)
    return remdm_loop(steps, eta=0.02, draw=p9)
