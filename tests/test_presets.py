from __future__ import annotations

import pytest

from dsl.presets import ETA_CAP, PRESETS, eta_cap, paper_rows, sampler
from dsl.sampling.ancestral import Ancestral
from dsl.sampling.categorical import Draw
from dsl.sampling.edm import Edm
from dsl.sampling.refine import Refine
from dsl.sampling.remask import Cap
from dsl.sampling.reveal import FirstHitting, Reveal
from dsl.sampling.sampler import Chain
from dsl.sampling.schedule import Loop
from dsl.sampling.specification import from_data, to_data

NAMES = [
    "hybrid@16+32" if name == "hybrid" else name if name in ("roar", "causal") else f"{name}@16"
    for name in PRESETS
]


@pytest.mark.parametrize("name", NAMES)
def test_a_sampler_survives_being_written_down(name: str) -> None:
    assert from_data(to_data(sampler(name))) == sampler(name)


def test_names_build_what_they_say() -> None:
    assert sampler("remdm-loop@128:eta=0.02,top_p=0.9,alpha_on=0.8") == Ancestral(
        128, Loop(alpha_on=0.8), Cap(0.02), Draw(top_p=0.9)
    )
    assert sampler("first-hitting") == sampler("roar") == Reveal("random")
    assert sampler("first-hitting@8") == FirstHitting(8)
    hybrid = sampler("hybrid@16+32:temperature=1.0")
    assert isinstance(hybrid, Chain)
    walk, _, refine = hybrid.samplers
    assert isinstance(walk, Edm) and (walk.num_steps, walk.stop, walk.churn) == (16, 0.49, 1.41)
    assert isinstance(refine, Refine) and refine.draw == Draw()


@pytest.mark.parametrize(
    "name, message",
    [
        ("mdml@8", "unknown sampler 'mdml'; expected one of mdlm@T"),
        ("mdlm", "'mdlm' needs a number of steps"),
        ("mdlm@0", "at least 1 step, got '0'"),
        ("mdlm@x", "cannot read the steps 'x'"),
        ("mdlm@many", "expected e.g. mdlm@128"),
        ("hybrid@16", r"expected e.g. hybrid@16\+32"),
        ("roar@12", "takes as many steps as tokens"),
        ("mdlm@8:eta=0.1", "cannot use 'eta=0.1' with sampler 'mdlm'; its fields are refresh_un"),
        ("mdlm@8:top_p", "cannot use 'top_p'"),
        ("mdlm@8:top_p=high", "top_p must be a number, got 'high'"),
        ("mdlm@8:top_p=0", "top_p must lie in"),
        ("mdlm@8:refresh_unmasked=1", "must be true or false"),
        ("edm@8:start=middle", "start must be one of zero, mean; got 'middle'"),
    ],
)
def test_names_that_cannot_be_read_are_explained(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sampler(name)


@pytest.mark.parametrize(
    "data, message",
    [
        ([], "a mapping with a 'kind'"),
        ({"kind": "Magic"}, "unknown kind of sampler 'Magic'; expected Chain, Ancestral"),
        ({"kind": "Ancestral", "num_steps": 4, "stesp": 3}, "stesp"),
        ({"kind": "Ancestral"}, "num_steps"),
        ({"kind": "Localize", "num_steps": 4, "noise": "loud"}, "noise"),
        ({"kind": "Edm", "num_steps": 4, "heun": "false"}, "expected bool, got 'false' @ .*heun"),
        ({"kind": "Edm", "num_steps": 2.7}, "expected int, got 2.7"),
        ({"kind": "Edm", "num_steps": 4, "churn_min": "Infinity"}, "expected float"),
        ({"kind": "Chain", "sampler": []}, "a list of 'samplers' and nothing else"),
    ],
)
def test_specifications_that_cannot_be_read_are_explained(data: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_data(data)


def test_eta_cap_is_the_papers_at_its_budgets_and_between_them_elsewhere() -> None:
    for source in ("equation", "table"):
        for steps, value in ETA_CAP[source].items():
            assert eta_cap(steps, source) == value  # type: ignore[arg-type]
    assert eta_cap(64) == 0.010 and eta_cap(4096) == 0.004
    assert 0.004 < eta_cap(800) < 0.007


def test_every_row_of_the_tables_can_be_asked_for() -> None:
    rows = paper_rows()
    assert len([row for row in rows if row.table == "owt"]) == 7 * 4 + 1
    assert len([row for row in rows if row.table == "hybrid"]) == 6
    best = max(rows, key=lambda row: row.mauve)
    assert (best.table, best.steps, best.mauve) == ("hybrid", (32, 48), 0.724)
    for row in rows:
        assert from_data(to_data(row.sampler)) == row.sampler
