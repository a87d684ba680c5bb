"""The chain from left to right: exact if all terms are asked for, unbiased if some are."""

from __future__ import annotations

import pytest

from dsl.core import oracle
from dsl.core.streams import stream
from dsl.likelihoods.chain_rule import Causal
from tests.conftest import assert_near
from tests.families.conftest import TOKENS, awake
from tests.families.test_mdlm import MDLM


def test_of_an_exact_denoiser_it_is_the_truth(truth: oracle.Oracle) -> None:
    """All terms are summed, so there is no error at all."""
    tokens = truth.sample(6, generator=stream(1))
    found = Causal(replicates=8, draws=8, batch_size=5)(truth, tokens, generator=stream(2))
    assert_near(found.nats, -truth.log_prob(tokens))
    assert float(found.stderr.max()) < 1e-9


@pytest.mark.parametrize("draws", [1, 2])
def test_some_terms_have_the_mean_of_all(draws: int) -> None:
    """Of a network that is exact for nothing; in six tokens two replicates of two leave two out."""
    network, times = awake(MDLM), 400
    exact = Causal(replicates=2, draws=3)(network, TOKENS[:4]).nats
    many = TOKENS[:4].repeat(times, 1)
    found = Causal(replicates=2, draws=draws)(network, many, generator=stream(0))
    totals = found.nats.reshape(times, 4)
    error = totals.std(dim=0) / times**0.5
    assert ((totals.mean(dim=0) - exact).abs() < 4 * error).all()
    assert float(error.min()) > 0


def test_every_term_is_put_where_its_token_is() -> None:
    """And is asked for with the tokens before it only."""
    network, tokens = awake(MDLM), TOKENS[:3]
    changed = tokens.clone()
    changed[:, 4:] = (changed[:, 4:] + 1) % 5
    one, two = (Causal(2, 3)(network, rows).tokens for rows in (tokens, changed))
    assert_near(one[:, :4], two[:, :4])
    assert float((one[:, 4:] - two[:, 4:]).abs().min()) > 1e-4
