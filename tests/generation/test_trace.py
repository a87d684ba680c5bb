from __future__ import annotations

import json
import math
from itertools import pairwise

import pytest
import torch

from dsl.core import oracle
from dsl.core.denoiser import Endpoints
from dsl.core.streams import Streams
from dsl.generation.trace import Rewrites, Trace, sharpness
from dsl.samplers.base import last
from dsl.samplers.registry import sampler
from dsl.samplers.state import State

CHAIN = oracle.markov(6, 8)


def traced(name: str, *, measure: bool = True) -> tuple[Trace, State]:
    trace, start = Trace(CHAIN, measure), State.blank(3, 8)
    states = sampler(name).steps(CHAIN, start, generator=Streams.derive(0, range(3)))
    *_, end = trace.follow(states, start, indices=[10, 11, 12])
    return trace, end


@pytest.mark.parametrize("name", ["remdm-loop@20:eta=0.2", "roar", "localize@9", "hybrid@4+4"])
def test_tracing_changes_neither_samples_nor_nfe(name: str) -> None:
    plain = last(sampler(name), CHAIN, State.blank(3, 8), generator=Streams.derive(0, range(3)))
    trace, state = traced(name)
    assert torch.equal(state.tokens, plain.tokens)
    assert torch.equal(state.nfe, plain.nfe)
    assert trace.records[-1]["nfe"] == int(plain.nfe[-1])


def test_records_add_up() -> None:
    """What was revealed less what was remasked is what is no longer masked, at every step."""
    trace, _ = traced("remdm-loop@40:eta=0.2", measure=False)
    for name in (10, 11, 12):
        rows = [record for record in trace.records if record["index"] == name]
        assert [row["step"] for row in rows] == list(range(42))
        visible = 0.0
        for row in rows:
            visible += row["revealed"] - row["remasked"]
            assert row["masked_ratio"] == pytest.approx(1 - visible)
            assert sum(level > 0 for level in row["snr"]) == pytest.approx(8 * visible)
        remasked = sum(row["remasked"] for row in rows)
        assert rows[-1]["remasks_per_token"] == pytest.approx(remasked)
        assert "entropy" not in rows[0]
    json.dumps(trace.records)


def test_the_three_counters() -> None:
    """A position goes _ a _ b b: one remask, one token change, two rewrites after step one."""
    states = [State.start(torch.tensor([[token]])) for token in (-1, 0, -1, 1, 1)]
    counts = Rewrites.of(states[0])
    for before, after in pairwise(states):
        counts = counts.after(before, after)
    assert counts.remasks.tolist() == [1]
    assert counts.token_changes.tolist() == [1]
    assert counts.rewrites.tolist() == [2]


def test_sharpness_at_the_ends() -> None:
    flat = oracle.Enumerated(
        torch.arange(10).unsqueeze(1), torch.zeros(10).double(), torch.eye(10).double()
    )
    masked = sharpness(flat, Endpoints(torch.tensor([[-1]])), top_p=0.85)
    assert float(masked.entropy) == pytest.approx(math.log(10))
    assert float(masked.max_prob) == pytest.approx(0.1)
    assert float(masked.uncertainty) == pytest.approx(0.9)
    assert float(masked.nucleus) == 9
    hard = sharpness(flat, Endpoints(torch.tensor([[3]])))
    assert float(hard.nucleus) == 1
    assert float(hard.entropy) == pytest.approx(0, abs=1e-12)


def test_the_posterior_sharpens_along_a_run() -> None:
    trace, _ = traced("roar")
    mine = [record for record in trace.records if record["index"] == 10]
    assert mine[0]["uncertainty"] > 0.3 > 0.01 > mine[-1]["uncertainty"]
    assert mine[0]["entropy"] > mine[-1]["entropy"]
