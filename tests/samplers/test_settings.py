from __future__ import annotations

import pytest

from dsl.samplers.base import Chain
from dsl.samplers.edm import SIGMA_SWITCH, Edm, hybrid
from dsl.samplers.masked import ETA_CAP, Ancestral, Cap, eta_cap, remdm_loop


def test_eta_cap_is_the_papers_at_its_budgets_and_between_them_elsewhere() -> None:
    for source in ("equation", "table"):
        for steps, value in ETA_CAP[source].items():
            assert eta_cap(steps, source) == value
    assert eta_cap(64) == 0.010 and eta_cap(4096) == 0.004
    assert 0.004 < eta_cap(800) < 0.007


@pytest.mark.parametrize("steps", [64, 128, 200, 1024])
def test_the_loop_takes_its_eta_from_the_paper_unless_told(steps: int) -> None:
    found = remdm_loop(steps)
    assert isinstance(found, Ancestral) and found.remask == Cap(eta_cap(steps))
    told = remdm_loop(steps, eta=0.3)
    assert isinstance(told, Ancestral) and told.remask == Cap(0.3)


def test_the_hybrid_switches_where_the_paper_does() -> None:
    for budget, sigma in {**SIGMA_SWITCH, (7, 9): 0.47}.items():
        found = hybrid(budget)
        assert isinstance(found, Chain)
        walk = found.samplers[0]
        assert isinstance(walk, Edm) and (walk.num_steps, walk.stop) == (budget[0], sigma)
