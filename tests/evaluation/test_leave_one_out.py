from __future__ import annotations

import torch

from dsl.core import oracle
from dsl.evaluation.calibration import leave_one_out

CHAIN = oracle.markov(5, 6)


def test_it_is_bayes_rule_over_the_hidden_token() -> None:
    """P(x_i | rest) = P(x) / Σ_v P(x with x_i = v), by the joint probabilities of the chain."""
    tokens = CHAIN.sample(3, generator=torch.Generator().manual_seed(0))
    found = leave_one_out(CHAIN, tokens)
    assert found.shape == tokens.shape
    for i in range(tokens.shape[1]):
        others = []
        for v in range(len(CHAIN.codebook)):
            changed = tokens.clone()
            changed[:, i] = v
            others.append(CHAIN.log_prob(changed))
        expected = (CHAIN.log_prob(tokens) - torch.stack(others).logsumexp(dim=0)).exp()
        torch.testing.assert_close(found[:, i], expected)
