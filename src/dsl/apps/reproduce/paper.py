"""The rows of the paper's tables, each with the sampler behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dsl.samplers import (
    SIGMA_SWITCH,
    Corrector,
    Draw,
    Sampler,
    fb,
    hybrid,
    mdlm,
    remdm_cap,
    remdm_conf,
    remdm_loop,
    roar,
)


@dataclass(frozen=True)
class PaperRow:
    """One cell of a table of the paper: its sampler, and the reported MAUVE."""

    table: str
    method: str
    steps: int | tuple[int, int]
    sampler: Sampler
    mauve: float


def paper_rows() -> list[PaperRow]:
    """List the rows of the two OpenWebText tables whose sampler is implemented here.

    All use top-p 0.9, dropping the crossing token; FB and DFM are as in ReMDM's code. Rows of other
    models (AR, SEDD, PRISM, ADLM) are missing, because they need other networks.
    """
    p9 = Draw(top_p=0.9)
    budgets = (128, 256, 512, 1024)
    rows = [PaperRow("owt", "DSL-FT + ROAR (naive)", 1024, roar(shared=True, draw=p9), 0.551)]
    reported: dict[str, tuple[Callable[[int], Sampler], tuple[float, ...]]] = {
        "MDLM": (lambda t: mdlm(t, draw=p9), (0.015, 0.023, 0.031, 0.042)),
        "MDLM+FB": (lambda t: fb(t, official=True, draw=p9), (0.064, 0.086, 0.103, 0.133)),
        "MDLM+DFM": (lambda t: Corrector(t, p9, official=True), (0.041, 0.098, 0.168, 0.254)),
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
