"""The benchmarks run and compare equal work; their timings are not tested."""

from __future__ import annotations

import pytest
from benchmarks.sampling_cost import (
    Overhead,
    Pace,
    Parallel,
    Speed,
    overhead,
    pace,
    parallel,
    speed,
)
from benchmarks.training_cost import training
from benchmarks.zoo_cost import costs

from dsl.families.registry import FAMILIES
from dsl.models.config import ModelConfig


def test_both_loops_give_the_same_rows() -> None:
    """`speed` itself asserts it at every state; here at a small size."""
    config = ModelConfig(50, codebook_dim=8, hidden_dim=16, n_blocks=1, n_heads=2, model_length=32)
    *_, result = speed(length=32, vocab_size=50, config=config, states=4)
    assert isinstance(result, Speed)
    assert result.steps == 32 and 10 < result.forwards < 32


def test_overhead_and_parallel_report_what_they_ran() -> None:
    small = overhead("mdlm@2", b=1, length=8)
    assert isinstance(small, Overhead) and small.seconds > small.seconds_denoising > 0
    rough = parallel("mdlm", 2, draws=500)
    assert isinstance(rough, Parallel)
    assert rough.nfe <= 3 and 0.5 < rough.invalid < 1


def test_samplers_are_timed_relative_to_the_first() -> None:
    said = list(pace(("mdlm@2", "causal"), b=1, length=8, rounds=2))
    first, second = (row for row in said if isinstance(row, Pace))
    assert said[:2] == ["round 1 of 2", "round 2 of 2"]
    assert (first.time, first.stderr, second.nfe) == (1.0, 0.0, 8.0)


def test_training_steps_are_timed_in_pairs() -> None:
    result = training(length=8, batch=2, pairs=2)
    assert result.ratio > 0 and result.loader_ratio > 1


@pytest.mark.slow
def test_every_family_is_timed_relative_to_mdlm() -> None:
    rows = list(costs(length=8, batch=1, calls=2, rounds=2))
    assert [row.family for row in rows] == list(FAMILIES)
    assert all(row.step > 0 and row.call > 0 and row.weights > 10**6 for row in rows)
    samplers = {row.family: row.sampler for row in rows}
    assert samplers["ar"] == "causal" and samplers["dsl"] == samplers["mdlm"] == "mdlm@2"
    with pytest.raises(ValueError, match="unknown family 'mdml'; expected one of adlm, ar"):
        next(costs(["mdml"]))
