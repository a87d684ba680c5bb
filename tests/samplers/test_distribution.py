"""Samplers against the truth: χ² on 20,000 draws from exact denoisers, in float64.

Cyclic: counts of the K sequences and of everything else. Markov: the table of each adjacent pair,
cells with an expectation below 5 pooled; the smallest p-value of the seven tables, times seven.
"""

from __future__ import annotations

import math
from functools import cache

import pytest
import torch
from scipy import stats
from torch import Tensor

from dsl.conditioning.evidence import Allowed, Confident, Evidence, NBest, Observed, Unknown, given
from dsl.core import oracle
from dsl.core.denoiser import Denoiser
from dsl.core.streams import stream
from dsl.core.types import MASK
from dsl.samplers.base import last
from dsl.samplers.registry import sampler
from dsl.samplers.state import State
from tests.conditioning.test_evidence import vectors

N = 20_000
RIGHT, WRONG = 1e-4, 1e-8
CYCLIC, CHAIN = oracle.cyclic(7), oracle.markov(6, 8)


def draw(name: str, denoiser: Denoiser, start: State, *, seed: int = 0) -> Tensor:
    return last(sampler(name), denoiser, start, generator=stream(seed)).tokens


def chi_square(observed: Tensor, expected: Tensor) -> float:
    """Return the p-value, pooling the cells expected fewer than five times."""
    few = expected < 5
    observed = torch.cat([observed[~few], observed[few].sum().unsqueeze(0)]).double()
    expected = torch.cat([expected[~few], expected[few].sum().unsqueeze(0)])
    if expected[-1] < 5:
        if observed[-1] > 0 and expected[-1] < 1e-6 * observed[-1]:
            return 0.0  # what cannot happen has happened
        # too small to judge by itself: add it to the smallest cell that is judged
        smallest = int(expected[:-1].argmin())
        observed[smallest] += observed[-1]
        expected[smallest] += expected[-1]
        observed, expected = observed[:-1], expected[:-1]
    statistic = ((observed - expected).square() / expected).sum()
    return float(stats.chi2.sf(float(statistic), len(expected) - 1))


def p_cyclic(tokens: Tensor) -> float:
    hits = (tokens.unsqueeze(1) == CYCLIC.sequences).all(dim=-1).sum(dim=0)
    observed = torch.cat([hits, (len(tokens) - hits.sum()).unsqueeze(0)])
    expected = torch.tensor([len(tokens) / 7] * 7 + [0.0]).double()
    return chi_square(observed, expected)


def p_pairs(tokens: Tensor, truth: oracle.Oracle) -> float:
    """Compare with the exact pair tables, from the oracle's own exact draws of the support."""
    tables = pair_tables(truth)
    values = []
    for i, table in enumerate(tables):
        cells = (tokens[:, i] * 6 + tokens[:, i + 1]).bincount(minlength=36)
        values.append(chi_square(cells, len(tokens) * table.flatten()))
    return min(1.0, min(values) * len(tables))


@cache
def pair_tables(truth: oracle.Oracle) -> list[Tensor]:
    """P(s_i = a, s_{i+1} = b) by the chain rule: P(a) from the prior, P(b | a) by conditioning."""
    zero = torch.full((1, 8), MASK)
    first = truth(State.start(zero).endpoints)[0].softmax(-1)
    tables = []
    for i in range(7):
        rows = []
        for a in range(6):
            tokens = zero.clone()
            tokens[0, i] = a
            conditional = truth(State.start(tokens).endpoints)[0, i + 1].softmax(-1)
            rows.append(first[i, a] * conditional)
        tables.append(torch.stack(rows))
    return tables


MASKED = ["roar", "roar:shared=true", "causal", "first-hitting"]
CONTINUOUS = [pytest.param(n, marks=pytest.mark.slow) for n in ("localize@150", "edm@96")]
EXACT_START = pytest.param("edm@96:sigma_max=10,start=mean", marks=pytest.mark.slow)
CONDITIONAL = ["roar", "causal", *CONTINUOUS]


@pytest.mark.parametrize("name", [*MASKED, *CONTINUOUS, EXACT_START])
def test_exact_paths_draw_the_cyclic_toy(name: str) -> None:
    assert p_cyclic(draw(name, CYCLIC, State.blank(N, 7))) > RIGHT


@pytest.mark.parametrize("name", [*MASKED, *CONTINUOUS, EXACT_START])
def test_exact_paths_draw_the_chain(name: str) -> None:
    assert p_pairs(draw(name, CHAIN, State.blank(N, 8)), CHAIN) > RIGHT


@pytest.mark.parametrize(
    "name",
    [
        "mdlm@1",
        "roar:temperature=0.8",
        pytest.param("edm@96:sigma_max=1", marks=pytest.mark.slow),
        pytest.param("localize@150:noise=0.7", marks=pytest.mark.slow),
    ],
)
def test_wrong_samplers_are_found_out(name: str) -> None:
    """All tokens at once; too cold; a start without its mean; too little noise."""
    assert p_pairs(draw(name, CHAIN, State.blank(N, 8)), CHAIN) < WRONG


def test_the_oracle_itself_passes() -> None:
    assert p_cyclic(CYCLIC.sample(N, generator=stream(0))) > RIGHT
    assert p_pairs(CHAIN.sample(N, generator=stream(0)), CHAIN) > RIGHT


def test_first_hitting_is_the_ancestral_law_at_the_same_budget() -> None:
    """Two samples of 20,000 at T = 4, where neither is exact: one table, no difference."""
    tables = []
    for name in ("first-hitting@4", "mdlm@4"):
        tokens = draw(name, CHAIN, State.blank(N, 8))
        tables.append(torch.stack([pair_counts(tokens, i) for i in range(7)]))
    values = [
        stats.chi2_contingency(torch.stack([a, b])[:, (a + b) >= 10].numpy()).pvalue
        for a, b in zip(*tables, strict=True)
    ]
    assert min(values) * 7 > RIGHT
    assert p_pairs(draw("first-hitting@4", CHAIN, State.blank(N, 8)), CHAIN) < WRONG


def pair_counts(tokens: Tensor, i: int) -> Tensor:
    return (tokens[:, i] * 6 + tokens[:, i + 1]).bincount(minlength=36)


@pytest.mark.parametrize(
    "name",
    ["mdlm", *(pytest.param(n, marks=pytest.mark.slow) for n in ("remdm-cap", "first-hitting"))],
)
def test_parallel_paths_approach_the_truth_as_one_over_the_steps(name: str) -> None:
    """The share of invalid sequences falls as 1/T: two tokens must share a step to disagree."""
    share, n = {}, 8_000
    for steps in (16, 64, 256):
        tokens = draw(f"{name}@{steps}", CYCLIC, State.blank(n, 7))
        share[steps] = float((CYCLIC.log_prob(tokens) == -torch.inf).double().mean())
    for steps in (16, 64):
        ratio = share[steps] / share[4 * steps]
        error = ratio * math.sqrt(1 / (n * share[steps]) + 1 / (n * share[4 * steps]))
        assert abs(ratio - 4) < 4 * error + 0.4  # the next order of 1/T


class TestConditional:
    """Infilling and soft evidence draw the oracle's exact conditional."""

    @pytest.mark.parametrize("name", CONDITIONAL)
    def test_infilling(self, name: str) -> None:
        tokens = torch.full((N, 8), MASK)
        tokens[:, 0], tokens[:, 4] = 2, 5
        field = torch.zeros(8, 6).double()
        field[0], field[4] = -300.0, -300.0
        field[0, 2] = field[4, 5] = 0.0
        drawn = draw(name, CHAIN, State.start(tokens))
        assert (drawn[:, 0] == 2).all() and (drawn[:, 4] == 5).all()
        assert p_pairs(drawn, CHAIN.tilt(field)) > RIGHT
        assert p_pairs(drawn, CHAIN) < WRONG

    @pytest.mark.parametrize("name", CONDITIONAL)
    def test_soft_evidence(self, name: str) -> None:
        row = [
            Confident(1, 0.7),
            Unknown(),
            NBest({0: 0.4, 3: 0.3}),
            Observed(2, 1.5),
            Unknown(),
            Allowed((0, 1, 2)),
            Unknown(),
            (Confident(4, 0.5), Observed(4, 0.5)),
        ]
        hints = Evidence.of([row], CHAIN).expand(N)
        truth = CHAIN.tilt(vectors(row, CHAIN.codebook).clamp(min=-300.0))
        drawn = draw(name, given(CHAIN, hints), State.blank(N, 8))
        assert (drawn[:, 5] <= 2).all()
        assert p_pairs(drawn, truth) > RIGHT
        assert p_pairs(drawn, CHAIN) < WRONG

    def test_soft_positions_are_revised(self) -> None:
        """A doubtful letter that does not fit the toy is corrected; the fitting ones stand."""
        letters = "ABCDEFG"
        garbled = [Unknown() if c == "_" else Observed(letters.index(c), 3.0) for c in "__CDBFF"]
        hints = Evidence.of([garbled], CYCLIC).expand(200)
        drawn = draw("roar", given(CYCLIC, hints), State.blank(200, 7))
        right = (drawn == torch.arange(7)).all(dim=1).double().mean()
        exact = given(CYCLIC, hints)(torch.zeros(200, 7, 2).double())[0, 0].softmax(-1)[0]
        assert float(exact) > 0.5
        assert abs(float(right - exact)) < 4 * math.sqrt(float(exact * (1 - exact)) / 200)
