from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dsl import oracle, sphere
from dsl.denoiser import Endpoints
from dsl.evidence import (
    Allowed,
    Confident,
    Evidence,
    Known,
    NBest,
    Observation,
    Observed,
    Unknown,
    evidence,
    given,
    likelihood,
)

KINDS: dict[str, Observation | tuple[Observation, ...]] = {
    "unknown": Unknown(),
    "known": Known(1),
    "observed": Observed(1, 2.5),
    "confident": Confident(2, 0.8),
    "n-best": NBest({0: 0.5, 2: 0.3}),
    "distribution": NBest({0: 0.2, 1: 0.5, 2: 0.3}),
    "allowed": Allowed((0, 2)),
    "several": (Confident(2, 0.6), Observed(0, 1.0)),
}
CHAIN = oracle.markov(3, 4)
LISTED = CHAIN.enumerated()


def condition(kind: str) -> tuple[Tensor, Evidence]:
    row = [Unknown(), KINDS[kind], Unknown(), Confident(0, 0.7)]
    log_likelihood = likelihood([row], CHAIN.codebook)
    return log_likelihood[0], evidence(log_likelihood, CHAIN.codebook)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("truth", [CHAIN, LISTED], ids=["markov", "enumerated"])
def test_conditioning_is_tilting_the_prior(truth: oracle.Oracle, kind: str) -> None:
    """given(f, e) is the exact denoiser of the prior reweighted by the likelihoods."""
    log_likelihood, hints = condition(kind)
    tilted = LISTED.tilt(log_likelihood)  # reweighs all 81 sequences, one by one
    z = torch.randn(5, 4, 2).double()
    conditioned = given(truth, hints)
    torch.testing.assert_close(conditioned(z).softmax(-1), tilted(z).softmax(-1), atol=1e-9, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_conditioning_holds_at_endpoints_and_for_chosen_rows(kind: str) -> None:
    log_likelihood, hints = condition(kind)
    tokens = torch.tensor([[-1, -1, 2, -1], [0, -1, -1, -1]])
    at = tokens == -1
    at[1, 0] = False
    conditioned = given(CHAIN, hints.expand(2))
    wanted = LISTED.tilt(log_likelihood)(Endpoints(tokens))[at]
    torch.testing.assert_close(
        conditioned(Endpoints(tokens), at=at).softmax(-1), wanted.softmax(-1), atol=1e-9, rtol=0
    )


@pytest.mark.parametrize("kind", ["unknown", "observed", "confident", "n-best", "distribution"])
def test_with_enough_dimensions_nothing_is_left_over(kind: str) -> None:
    assert condition(kind)[1].residual is None


def test_the_confidence_that_went_in_comes_out() -> None:
    """Under a uniform prior the posterior of a lone position is what the recogniser said."""
    codebook = sphere.simplex(27, dtype=torch.float64)
    flat = oracle.Enumerated(torch.arange(27).unsqueeze(1), torch.zeros(27).double(), codebook)
    hints = evidence(likelihood([[NBest({4: 0.62, 9: 0.31})]], codebook), codebook)
    p = given(flat, hints)(torch.zeros(1, 1, 26).double()).softmax(-1)[0, 0]
    assert float(p[4]) == pytest.approx(0.62)
    assert float(p[9]) == pytest.approx(0.31)
    assert float(p[0]) == pytest.approx(0.07 / 25)


def test_evidence_adds() -> None:
    """Two independent hints about a token are the sum of their states."""
    codebook = CHAIN.codebook
    first, second = Confident(0, 0.6), NBest({1: 0.5, 2: 0.3})
    both = evidence(likelihood([[(first, second)]], codebook), codebook).e
    one = evidence(likelihood([[first]], codebook), codebook).e
    two = evidence(likelihood([[second]], codebook), codebook).e
    torch.testing.assert_close(both, one + two)


def test_an_observation_is_its_endpoint_state() -> None:
    codebook = CHAIN.codebook
    e = evidence(likelihood([[Observed(1, 3.0), Known(2)]], codebook), codebook).e
    torch.testing.assert_close(e[0, 0], 3.0 * codebook[1])
    torch.testing.assert_close(e[0, 1], 100.0 * codebook[2])


class TestBelowTheSimplex:
    """With d < v - 1, e is a projection and the residual corrects the position's own logits."""

    codebook = sphere.random(20, 4, generator=torch.Generator().manual_seed(3)).double()

    @pytest.mark.parametrize(
        "hint", [Confident(3, 0.9), NBest({3: 0.5, 4: 0.4}), Allowed((1, 2, 3)), Known(5)]
    )
    def test_the_position_itself_stays_exact(self, hint: Observation) -> None:
        """For one hinted position, its own posterior is the exact one."""
        log_pi = torch.randn(20, generator=torch.Generator().manual_seed(4)).double()
        toy = oracle.Enumerated(torch.arange(20).unsqueeze(1), log_pi, self.codebook)
        log_likelihood = likelihood([[hint]], self.codebook)
        hints = evidence(log_likelihood, self.codebook)
        assert hints.residual is not None
        z = torch.zeros(1, 1, 4).double()
        wanted = toy.tilt(log_likelihood[0])(z).softmax(-1)
        torch.testing.assert_close(given(toy, hints)(z).softmax(-1), wanted, atol=1e-9, rtol=0)

    def test_the_state_leans_to_the_token(self) -> None:
        """The other positions see e alone: it must favour what was read."""
        hints = evidence(likelihood([[Confident(3, 0.9)]], self.codebook), self.codebook)
        assert (hints.e[0, 0] @ self.codebook.T).argmax() == 3

    def test_the_projection_matches_the_mean_embedding(self) -> None:
        log_likelihood = likelihood([[NBest({3: 0.4, 4: 0.3})]], self.codebook)
        e = evidence(log_likelihood, self.codebook).e[0, 0]
        ours = (e @ self.codebook.T).softmax(-1) @ self.codebook
        wanted = log_likelihood[0, 0].softmax(-1) @ self.codebook
        torch.testing.assert_close(ours, wanted, atol=2e-3, rtol=0)  # the ridge's share


@pytest.mark.parametrize(
    "row, message",
    [
        ([Allowed(())], "at least one token, got none"),
        ([Known(3)], "ids must lie in 0 … 2, got 3 … 3"),
        ([Observed(0, -1.0)], "SNR must be finite and >= 0, got -1"),
        ([NBest({0: 0.8, 1: 0.5})], "sum to at most 1"),
        ([NBest({0: -0.1})], "must be >= 0"),
        ([Confident(0, float("nan"))], "sum to at most 1"),
        ([(Known(0), Allowed((1, 2)))], "position 0 contradicts itself"),
    ],
)
def test_impossible_evidence_is_refused(row: list[Observation], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        likelihood([row], CHAIN.codebook)


def test_evidence_must_fit_the_batch() -> None:
    hints = evidence(likelihood([[Unknown()] * 4] * 2, CHAIN.codebook), CHAIN.codebook)
    with pytest.raises(ValueError, match="evidence about 2 sequences cannot condition 3"):
        given(CHAIN, hints)(torch.zeros(3, 4, 2).double())


def test_ragged_batches_are_refused() -> None:
    with pytest.raises(ValueError, match=r"one length, got \[1, 2\]"):
        likelihood([[Unknown()], [Unknown(), Unknown()]], CHAIN.codebook)


def test_likelihoods_without_a_possible_token_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one possible token"):
        evidence(torch.full((1, 1, 3), -torch.inf).double(), CHAIN.codebook)
