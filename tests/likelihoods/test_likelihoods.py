"""Both views of the likelihood against exact oracles: 4 standard errors, errors below 1%."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dsl.conditioning.evidence import Allowed, Confident, Evidence, Known, Unknown, given
from dsl.core import oracle
from dsl.core.denoiser import Denoiser, Endpoints
from dsl.core.path import Tabulated
from dsl.core.streams import Streams, stream
from dsl.likelihoods.estimate import Estimator
from dsl.likelihoods.path_audit import audit
from dsl.likelihoods.path_integral import PathIntegral, choose_cutoff
from dsl.likelihoods.roar import Enumerated, Roar
from tests.conditioning.test_evidence import vectors
from tests.doubles import Double

CYCLIC, CHAIN = oracle.cyclic(7), oracle.markov(6, 8)
TRUTHS = {"cyclic": CYCLIC, "chain": CHAIN}


def corners(length: int, cutoff: float) -> Tabulated:
    """A crooked contour: the even positions first, half way, then all."""
    half = torch.zeros(length).double()
    half[::2] = cutoff / 2
    table = torch.stack([torch.zeros(length).double(), half, torch.full_like(half, cutoff)])
    return Tabulated(torch.tensor([0.0, 0.3, 1.0]).double(), table)


def estimators(length: int, *, draws: int = 768, replicates: int = 8) -> dict[str, Estimator]:
    return {
        "roar": Roar(replicates, min(draws, 64)),
        "shared": PathIntegral("shared", replicates=replicates, draws=draws),
        "sequential": PathIntegral("sequential", replicates=replicates, draws=draws),
        "random-order": PathIntegral("random-order", replicates=replicates, draws=draws),
        "tabulated": PathIntegral(corners(length, 20.0), replicates=replicates, draws=draws),
    }


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow)
        if name in ("random-order", "tabulated")
        else name
        for name in estimators(7)
    ],
)
@pytest.mark.parametrize("truth", TRUTHS)
def test_every_estimator_is_the_negative_log_probability(truth: str, name: str) -> None:
    """32 sequences; each within 4.5 and the mean within 4 Monte-Carlo standard errors."""
    exact = TRUTHS[truth]
    tokens = exact.sample(32, generator=stream(1))
    estimate = estimators(exact.length)[name](exact, tokens, generator=stream(2))
    wanted = -exact.log_prob(tokens)
    mean_error = estimate.mean_stderr
    assert mean_error < 0.01 * float(wanted.mean())
    assert abs(float((estimate.nats - wanted).mean())) < 4 * mean_error + 1e-9
    # eight replicates make a t-statistic with 7 degrees of freedom: 32 of them stay below 7
    assert ((estimate.nats - wanted).abs() < 7 * estimate.stderr + 1e-6).all()


@pytest.mark.parametrize("name", ["roar", "shared", "sequential", "random-order"])
@pytest.mark.slow
def test_one_sequence_with_many_draws(name: str) -> None:
    """The error of a single sequence below 1% of its value, and the value within 4 of it."""
    tokens = CHAIN.sample(1, generator=stream(5))
    estimate = estimators(8, draws=16384, replicates=16)[name](CHAIN, tokens, generator=stream(6))
    wanted = float(-CHAIN.log_prob(tokens))
    assert float(estimate.stderr) < 0.01 * wanted
    assert abs(float(estimate.nats) - wanted) < 4 * float(estimate.stderr)


def chain_rule(tokens: Tensor) -> Tensor:
    """-log P(s_i | s_<i) of a Markov chain, from its tables."""
    steps = CHAIN.log_transition[tokens[:, :-1], tokens[:, 1:]]
    return -torch.cat([CHAIN.log_initial[tokens[:, :1]], steps], dim=1)


@pytest.mark.slow
def test_the_autoregressive_contour_is_the_chain_rule_token_by_token() -> None:
    tokens = CHAIN.sample(24, generator=stream(3))
    estimate = PathIntegral("sequential", replicates=16, draws=1024)(
        CHAIN, tokens, generator=stream(4)
    )
    error = estimate.values.std(dim=1) / 16**0.5
    difference = estimate.tokens - chain_rule(tokens)
    assert (difference.abs() < 6 * error + 0.05).all()  # 1.3% of the tokens are misread at Γ
    pooled = difference.mean(dim=0).abs() / (error.square().sum(dim=0).sqrt() / 24)
    assert (pooled < 4).all()


def test_roar_is_the_enumeration_of_all_subsets() -> None:
    short = oracle.markov(4, 5)
    tokens = short.sample(6, generator=stream(0))
    exact = Enumerated()(short, tokens)
    torch.testing.assert_close(exact.nats, -short.log_prob(tokens))
    assert (exact.stderr == 0).all()
    drawn = Roar(replicates=32, draws=64)(short, tokens, generator=stream(1))
    assert ((drawn.nats - exact.nats).abs() < 4.5 * drawn.stderr).all()
    error = drawn.values.std(dim=1) / 32**0.5
    assert ((drawn.tokens - exact.tokens).abs() < 5 * error).all()


def test_attributions_add_up() -> None:
    tokens = CHAIN.sample(3, generator=stream(0))
    for name, estimator in estimators(8, draws=4).items():
        estimate = estimator(CHAIN, tokens, generator=stream(0))
        torch.testing.assert_close(estimate.tokens.sum(dim=1), estimate.nats, msg=name)


@pytest.mark.parametrize(
    "name", ["roar", *(pytest.param(n, marks=pytest.mark.slow) for n in ("shared", "sequential"))]
)
def test_conditional_likelihood_is_free(name: str) -> None:
    """Score a sequence given evidence: the estimator of the conditioned denoiser."""
    row = [Known(2), Unknown(), Confident(3, 0.7), Allowed((0, 1, 4)), *[Unknown()] * 4]
    tilted = CHAIN.tilt(vectors(row, CHAIN.codebook).clamp(min=-300.0))
    tokens = tilted.sample(32, generator=stream(1))
    estimator = estimators(8)[name]
    hints = Evidence.of([row], CHAIN)
    estimate = estimator(given(CHAIN, hints), tokens, generator=stream(2))
    error = estimate.mean_stderr
    wanted = -tilted.log_prob(tokens)
    assert abs(float((estimate.nats - wanted).mean())) < 4 * error
    assert float(wanted.mean()) < float(-CHAIN.log_prob(tokens).mean())


class Tempered(Double):
    """An oracle whose answers at every second position are too sure: nobody's posterior."""

    def __init__(self, truth: oracle.Markov) -> None:
        self.truth, self.codebook, self.snr_max = truth, truth.codebook, truth.snr_max

    def __call__(self, z: Tensor | Endpoints, /, *, at: Tensor | None = None) -> Tensor:
        logits = self.truth(z).log_softmax(-1)
        logits[:, ::2] *= 3.0
        return logits if at is None else logits[at]


def audited(denoiser: Denoiser) -> float:
    tokens = CHAIN.sample(24, generator=stream(7))
    readings = {
        name: estimator(denoiser, tokens, generator=stream(8)).reading
        for name, estimator in estimators(8, draws=384).items()
    }
    return audit(readings, tokens.numel()).z


def test_the_audit_finds_an_inconsistent_denoiser() -> None:
    assert audited(Tempered(CHAIN)) > 6


@pytest.mark.slow
def test_the_audit_passes_any_oracle_right_or_wrong() -> None:
    """Consistency is not correctness: another prior is consistent with itself."""
    assert audited(CHAIN) < 4
    assert audited(oracle.markov(6, 8, seed=1)) < 4


@pytest.mark.parametrize(
    "name",
    [
        "roar",
        "shared",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("sequential", "random-order")),
    ],
)
def test_intervals_cover_the_truth_as_often_as_they_say(name: str) -> None:
    """200 repetitions: the nominal 95% interval of a small corpus's Monte-Carlo mean."""
    tokens = CHAIN.sample(4, generator=stream(11))
    wanted = float(-CHAIN.log_prob(tokens).mean())
    estimator = estimators(8, draws=8, replicates=16)[name]
    repeated = tokens.repeat(200, 1)
    estimate = estimator(CHAIN, repeated, generator=stream(12))
    means = estimate.nats.reshape(200, 4).mean(dim=1)
    errors = estimate.stderr.reshape(200, 4).square().sum(dim=1).sqrt() / 4
    covered = float(((means - wanted).abs() <= 1.96 * errors).double().mean())
    assert 0.90 <= covered <= 0.99


def test_warping_the_contour_leaves_the_estimate_and_changes_its_error() -> None:
    tokens = CHAIN.sample(32, generator=stream(1))
    wanted = -CHAIN.log_prob(tokens)
    errors = {}
    for power in (1.0, 2.0):
        estimate = PathIntegral(power=power, draws=16)(CHAIN, tokens, generator=stream(2))
        errors[power] = estimate.mean_stderr
        assert abs(float((estimate.nats - wanted).mean())) < 4 * errors[power]
    assert errors[2.0] < errors[1.0]


def test_the_cutoff_is_chosen_once_and_large_enough() -> None:
    tokens = CHAIN.sample(16, generator=stream(1))
    cutoff = choose_cutoff(CHAIN, tokens, generator=stream(2))
    _, rest = PathIntegral(cutoff=cutoff).terms(CHAIN, tokens, generator=stream(3))
    whole = PathIntegral(cutoff=cutoff)(CHAIN, tokens, generator=stream(3))
    assert float(rest.nats.mean()) < whole.mean_stderr
    assert choose_cutoff(CHAIN, tokens, candidates=(0.1, 0.2), generator=stream(2)) == 0.2


def test_a_small_cutoff_overestimates() -> None:
    """What the tokens still have in common at Γ is counted twice by the product of marginals."""
    tokens = CYCLIC.sample(64, generator=stream(1))
    small = PathIntegral(cutoff=0.5, draws=32)(CYCLIC, tokens, generator=stream(2))
    error = small.mean_stderr
    assert float(small.nats.mean()) > float(-CYCLIC.log_prob(tokens).mean()) + 6 * error


def test_a_sequence_is_scored_the_same_in_any_batch() -> None:
    tokens = CHAIN.sample(4, generator=stream(1))
    for estimator in estimators(8, draws=3).values():
        whole = estimator(CHAIN, tokens, generator=Streams.derive(0, range(4)))
        alone = estimator(CHAIN, tokens[2:3], generator=Streams.derive(0, [2]))
        torch.testing.assert_close(whole.values[2:3], alone.values)


class Broken(Double):
    codebook, snr_max = CHAIN.codebook, 100.0

    def __call__(self, z: Tensor | Endpoints, /, *, at: Tensor | None = None) -> Tensor:
        logits = CHAIN(z, at=at)
        return torch.full_like(logits, torch.nan)


@pytest.mark.parametrize("name", estimators(8))
def test_nan_logits_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="NaN logits"):
        estimators(8)[name](Broken(), CHAIN.sample(2), generator=stream(0))


def test_impossible_budgets_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 replicates of at least 1 draw, got 1 of 4"):
        Roar(replicates=1, draws=4)
    with pytest.raises(ValueError, match="got 4 of 0"):
        PathIntegral(replicates=4, draws=0)
    with pytest.raises(ValueError, match="cut-off must be positive"):
        PathIntegral(cutoff=0.0)
    with pytest.raises(ValueError, match=r"2\^20 denoiser calls"):
        Enumerated()(oracle.markov(3, 20), torch.zeros(1, 20, dtype=torch.long))
