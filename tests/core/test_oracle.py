from __future__ import annotations

import pytest
import torch

from dsl.core import oracle, sphere
from dsl.core.channel import observe
from dsl.core.denoiser import Endpoints
from dsl.core.streams import Streams


def test_forward_backward_equals_enumeration() -> None:
    chain = oracle.markov(4, 4)
    z = 2 * torch.randn(6, 4, 3).double()
    listed = chain.enumerated()
    torch.testing.assert_close(chain(z).log_softmax(-1), listed(z).log_softmax(-1))


def test_log_probabilities_sum_to_one(truth: oracle.Oracle) -> None:
    listed = truth.enumerated() if isinstance(truth, oracle.Markov) else truth
    total = truth.log_prob(listed.sequences).logsumexp(0)
    torch.testing.assert_close(total, torch.zeros(()).double())


def test_sequences_outside_the_support_have_no_probability() -> None:
    assert oracle.two_bit().log_prob(torch.tensor([[0, 1]])) == -torch.inf


def test_samples_follow_the_distribution(truth: oracle.Oracle, generator: torch.Generator) -> None:
    """20,000 draws: the mean of -log P is the entropy, within 4 standard errors."""
    listed = truth.enumerated() if isinstance(truth, oracle.Markov) else truth
    surprise = -truth.log_prob(truth.sample(20_000, generator=generator))
    log_p = truth.log_prob(listed.sequences)
    entropy = -(log_p.exp() * log_p).sum()
    assert abs(surprise.mean() - entropy) <= 4 * surprise.std() / 20_000**0.5 + 1e-12


def test_tilting_reweights_every_sequence(truth: oracle.Oracle) -> None:
    field = torch.randn(truth.length, len(truth.codebook)).double()
    listed = truth.enumerated() if isinstance(truth, oracle.Markov) else truth
    tilted = truth.tilt(field)
    likelihood = field[torch.arange(truth.length), listed.sequences].sum(-1)
    wanted = (truth.log_prob(listed.sequences) + likelihood).log_softmax(0)
    torch.testing.assert_close(tilted.log_prob(listed.sequences), wanted)
    # … and drawing from it agrees with its probabilities.
    drawn = tilted.log_prob(tilted.sample(20_000, generator=torch.Generator().manual_seed(1)))
    entropy = -(wanted.exp() * wanted).sum()
    assert abs(-drawn.mean() - entropy) <= 4 * drawn.std() / 20_000**0.5 + 1e-12


def test_endpoints_are_conditioning_on_tokens() -> None:
    """Revealed tokens make the oracle's posterior the exact conditional, to e^-γ_max(1-cos)."""
    chain = oracle.markov(3, 4)
    tokens = torch.tensor([[0, -1, 2, -1]])
    listed = chain.enumerated()
    compatible = ((listed.sequences == tokens) | (tokens == -1)).all(dim=1)
    log_p = torch.where(compatible, listed.log_weights, -torch.inf)
    conditional = oracle.Enumerated(listed.sequences, log_p, chain.codebook)
    zero = torch.zeros(1, 4, 2).double()
    torch.testing.assert_close(
        chain(Endpoints(tokens)).softmax(-1), conditional(zero).softmax(-1), atol=1e-12, rtol=0
    )


def test_rows_asked_for_are_rows_of_the_whole(truth: oracle.Oracle) -> None:
    z = torch.randn(5, truth.length, truth.codebook.shape[1]).double()
    at = torch.rand(5, truth.length) < 0.4
    at[2] = False
    torch.testing.assert_close(truth(z, at=at), truth(z)[at])
    assert truth(z, at=torch.zeros_like(at)).shape == (0, len(truth.codebook))


def test_contradicting_states_stay_finite() -> None:
    """No sequence of the toy fits, and still the oracle answers with a proper posterior."""
    toy = oracle.cyclic(7)
    p = toy(Endpoints(torch.tensor([[0, 0, 0, 0, 1, 1, 1]]))).softmax(-1)
    torch.testing.assert_close(p.sum(-1), torch.ones(1, 7).double())


def test_tokens_of_a_crowded_circle_are_told_apart() -> None:
    toy = oracle.cyclic(26)
    tokens = toy.sequences[3:4].clone()
    tokens[0, 1:] = -1
    assert (toy(Endpoints(tokens)).argmax(-1) == toy.sequences[3]).all()
    assert float(toy(Endpoints(tokens)).softmax(-1).amax(-1).min()) > 1 - 1e-12


def test_samples_do_not_depend_on_the_batch(truth: oracle.Oracle) -> None:
    whole = truth.sample(4, generator=Streams.derive(0, range(4)))
    alone = truth.sample(1, generator=Streams.derive(0, [3]))
    assert torch.equal(whole[3:], alone)


def test_bad_input_is_named() -> None:
    toy = oracle.cyclic(5)
    with pytest.raises(ValueError, match="must be finite"):
        toy(torch.full((1, 5, 2), torch.nan).double())
    with pytest.raises(ValueError, match="have 2 coordinates per token, got 3"):
        toy(torch.zeros(1, 5, 3).double())
    with pytest.raises(ValueError, match="ids must lie in -1 … 4, got 0 … 9"):
        toy(Endpoints(torch.tensor([[0, 1, 2, 3, 9]])))
    with pytest.raises(ValueError, match="ids must lie in 0 … 2, got 0 … 3"):
        oracle.Enumerated(torch.tensor([[0, 3]]), torch.zeros(1), sphere.circle(3))
    with pytest.raises(ValueError, match="this chain has 8 tokens, the state has 3"):
        oracle.markov()(torch.zeros(1, 3, 5).double())


def test_a_sharp_chain_does_not_underflow() -> None:
    chain = oracle.markov(6, 64, sharpness=30.0)
    z = observe(chain.codebook[chain.sample(2)], torch.full((2, 64), 80.0).double())
    assert chain(z).log_softmax(-1).isfinite().all()
