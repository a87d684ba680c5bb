from __future__ import annotations

from dsl.apps.reproduce.paper import paper_rows
from dsl.samplers.registry import sampler
from dsl.samplers.specification import from_data, to_data


def test_every_row_of_the_tables_can_be_asked_for() -> None:
    rows = paper_rows()
    assert len([row for row in rows if row.table == "owt"]) == 7 * 4 + 1
    assert len([row for row in rows if row.table == "hybrid"]) == 6
    best = max(rows, key=lambda row: row.mauve)
    assert (best.table, best.steps, best.mauve) == ("hybrid", (32, 48), 0.724)
    for row in rows:
        assert from_data(to_data(row.sampler)) == row.sampler


def test_the_rows_of_the_baselines_are_those_of_their_own_code() -> None:
    p9 = "official=true,top_p=0.9"
    for row in paper_rows():
        if row.method in ("MDLM+FB", "MDLM+DFM"):
            assert row.sampler == sampler(f"{row.method[5:].lower()}@{row.steps}:{p9}")
