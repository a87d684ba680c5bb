from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dsl.core import oracle
from dsl.core.alpha import Cosine, Linear, Polynomial
from dsl.core.denoiser import Endpoints
from dsl.core.streams import Streams, stream
from dsl.generation.trace import Rewrites
from dsl.samplers.base import last
from dsl.samplers.corrector import Corrector
from dsl.samplers.masked import (
    Alpha,
    Ancestral,
    Cap,
    Confidence,
    ForwardBackward,
    Interval,
    Loop,
    Never,
    Rescale,
    intervals,
    reveal_probability,
)
from dsl.samplers.registry import sampler
from dsl.samplers.state import State
from tests.apps.zoo.test_timed import DRAWS, p_value
from tests.doubles import Double
from tests.exact_times import enumerated


class Coin(Double):
    """A denoiser of two equally likely tokens: as fast as a denoiser can be."""

    codebook = torch.tensor([[-1.0], [1.0]]).double()
    snr_max = 100.0

    def __call__(self, z: Tensor | Endpoints, /, *, at: Tensor | None = None) -> Tensor:
        assert at is not None
        return torch.zeros(int(at.sum()), 2).double()


@pytest.mark.parametrize("rule", [Cap(0.0), Rescale(0.0)])
def test_mdlm_is_remdm_without_remasking(rule: Cap | Rescale) -> None:
    """Token for token, state for state, with the same generator."""
    chain = oracle.markov(6, 8)
    runs = [
        list(Ancestral(16, remask=r).steps(chain, State.blank(32, 8), generator=stream(0)))
        for r in (Never(), rule)
    ]
    for ours, theirs in zip(*runs, strict=True):
        assert torch.equal(ours.tokens, theirs.tokens)


@pytest.mark.parametrize("steps", [100, 128, 256, 512, 1000, 1024])
def test_the_loop_takes_half_of_the_steps(steps: int) -> None:
    phases = intervals(Loop(), steps)
    loop = sum(step.remask for step in phases)
    first = [step.remask for step in phases].index(True)
    assert abs(first - 0.45 * steps) <= 1
    assert abs(loop - 0.50 * steps) <= 1
    assert abs(steps - first - loop - 0.05 * steps) <= 1
    assert all(step.alpha_t == step.alpha_s == 0.9 for step in phases if step.remask)


def test_a_loop_of_twenty_steps_has_none_to_finish_with() -> None:
    assert intervals(Loop(), 20)[-1] == Interval(0.9, 0.9)
    assert intervals(Loop(), 21)[-1].alpha_s > 0.9999


@pytest.mark.parametrize(
    "steps, expected",
    [
        (128, 0.577),
        (256, 0.922),
        pytest.param(512, 1.613, marks=pytest.mark.slow),
        pytest.param(1024, 1.843, marks=pytest.mark.slow),
    ],
)
def test_remask_events_are_those_the_paper_reports(steps: int, expected: float) -> None:
    """Events per token at L = 1024 over 64 sequences, with the equation's η_cap."""
    start = State.blank(64, 1024)
    counts, before = Rewrites.of(start), start
    for state in sampler(f"remdm-loop@{steps}").steps(Coin(), start, generator=stream(0)):
        counts, before = counts.after(before, state), state
    per_token = counts.remasks / 1024
    error = float(per_token.std()) / 64**0.5
    assert abs(float(per_token.mean()) - expected) < 4 * error + 0.0005  # as printed


@pytest.mark.slow
def test_the_tables_values_do_not_give_the_reported_rewrites() -> None:
    start = State.blank(64, 1024)
    counts, before = Rewrites.of(start), start
    path = sampler("remdm-loop@1024:eta_source=table")
    for state in path.steps(Coin(), start, generator=stream(0)):
        counts, before = counts.after(before, state), state
    per_token = counts.remasks / 1024
    assert abs(float(per_token.mean()) - 1.843) > 10 * float(per_token.std()) / 64**0.5


@pytest.mark.parametrize("rule", [Never(), ForwardBackward(), Cap(0.3), Rescale(0.5), Confidence()])
@pytest.mark.parametrize("alpha", [Linear(), Cosine(), Polynomial(3.0), Loop()])
def test_moves_are_probabilities_that_keep_the_marginal(
    rule: Never | ForwardBackward | Cap | Rescale | Confidence, alpha: Alpha
) -> None:
    """If α_t of the tokens are visible before a step, α_s are visible after it."""
    state = State.blank(3, 8)
    state = state.commit(
        torch.rand(3, 8) < 0.5, torch.zeros(24, dtype=torch.long), torch.rand(24).double()
    )
    for step in intervals(alpha, 40):
        sigma = rule(step, state) if step.remask else torch.zeros(3, 8).double()
        reveal = reveal_probability(step, sigma)
        assert (sigma >= 0).all() and (sigma <= 1 + 1e-12).all()
        assert (reveal >= -1e-12).all() and (reveal <= 1 + 1e-9).all()
        kept = step.alpha_t * (1 - sigma) + (1 - step.alpha_t) * reveal
        torch.testing.assert_close(kept, torch.full_like(kept, step.alpha_s), atol=1e-9, rtol=0)


@pytest.mark.parametrize("name", ["cosine", "polynomial"])
def test_tokens_appear_as_their_schedule_says(name: str) -> None:
    """After k of T steps α(1 - k/T) are visible; MD4's grid reveals little at first."""
    path = sampler(f"mdlm@16:schedule={name},power=1.5")
    alpha = {"cosine": Cosine(), "polynomial": Polynomial(1.5)}[name]
    assert isinstance(path, Ancestral) and path.alpha == alpha
    states = path.steps(Coin(), State.blank(400, 100), generator=stream(0))
    for k, state in zip(range(1, 17), states, strict=False):
        share = float(alpha(torch.tensor(1 - k / 16, dtype=torch.float64)))
        assert abs(float((~state.masked).double().mean()) - share) < 0.01


ALONG = ["schedule=linear", "schedule=cosine", "schedule=polynomial,power=3"]


@pytest.mark.parametrize("fields", ALONG)
def test_along_any_schedule_the_truth_is_drawn(fields: str) -> None:
    """In a step that reveals two tokens they are independent, in about 1/T of the sequences."""
    truth = enumerated(oracle.markov(3, 3, sharpness=0.8))
    end = last(sampler(f"mdlm@200:{fields}"), truth, State.blank(DRAWS, 3), generator=stream(3))
    assert p_value(truth, end.tokens) > 1e-4


@pytest.mark.parametrize("fields", ALONG)
def test_a_wrong_network_and_too_few_steps_are_noticed(fields: str) -> None:
    truth = enumerated(oracle.markov(3, 3, sharpness=0.8))
    other = enumerated(oracle.markov(3, 3, seed=1, sharpness=0.8))
    for steps, network in ((200, other), (2, truth)):
        path = sampler(f"mdlm@{steps}:{fields}")
        end = last(path, network, State.blank(DRAWS, 3), generator=stream(3))
        assert p_value(truth, end.tokens) < 1e-9


def test_remask_rules_are_those_of_remdm() -> None:
    """σ at α_t = .5, α_s = .9, where (1 - α_s)/α_t = .2."""
    step, state = Interval(0.5, 0.9), State.blank(1, 4)
    state = state.commit(
        torch.tensor([[True, True, False, True]]),
        torch.tensor([0, 1, 0]),
        torch.tensor([0.9, 0.1, 0.5]).double(),
    )
    assert float(Cap(0.05)(step, state)[0, 0]) == pytest.approx(0.05)
    assert float(Cap(0.5)(step, state)[0, 0]) == pytest.approx(0.2)
    assert float(Rescale(0.5)(step, state)[0, 0]) == pytest.approx(0.1)
    assert float(ForwardBackward()(Interval(0.5, 0.55), state)[0, 0]) == pytest.approx(0.1)
    assert float(ForwardBackward()(Interval(0.0, 0.1), state)[0, 0]) == 1.0
    shares = torch.tensor([-0.9, -0.1, -0.5]).softmax(0).double() * 0.2
    wanted = torch.tensor([[shares[0], shares[1], 0.0, shares[2]]]).double()
    torch.testing.assert_close(Confidence()(step, state), wanted)


def test_confidence_never_spends_doubt_on_fixed_tokens() -> None:
    state = State.start(torch.tensor([[3, -1, -1]]))
    state = state.commit(
        torch.tensor([[False, True, False]]), torch.tensor([0]), torch.tensor([0.5]).double()
    )
    sigma = Confidence()(Interval(0.3, 0.5), state)
    assert sigma.tolist() == [[0.0, 1.0, 0.0]]


def test_the_corrector_moves_with_probabilities_and_reaches_the_end() -> None:
    for steps in (1, 8, 128, 1024):
        grid = Corrector(steps).grid()
        assert len(grid) >= steps
        assert all(0 <= reveal <= 1 + 1e-9 and 0 <= remask <= 1 for reveal, remask in grid)
        # its marginal: visible after a step = visible kept + masked revealed, from 0 to nearly 1
        visible = 0.0
        for reveal, remask in grid:
            visible = visible * (1 - remask) + (1 - visible) * reveal
        assert visible > 1 - 1e-4


def test_forwards_are_made_only_for_steps_that_reveal() -> None:
    """At T much larger than L, MDLM asks about a sequence at most once for each of its tokens."""
    end = last(sampler("mdlm@500"), oracle.markov(6, 8), State.blank(16, 8), generator=stream(0))
    assert (end.nfe <= 8).all()
    assert (end.nfe >= 7).all()  # two of eight tokens in one of 500 steps are rare


def test_a_step_that_only_remasks_needs_no_forward() -> None:
    start = State.blank(4, 8)
    reveals, before = torch.zeros(4, dtype=torch.long), start
    path = sampler("remdm-loop@200:eta=0.05")
    for state in path.steps(oracle.markov(6, 8), start, generator=stream(1)):
        reveals += (before.masked & ~state.masked).any(dim=1).long()
        before = state
    assert torch.equal(state.nfe, reveals)


def test_refreshing_redraws_visible_tokens_and_plain_sampling_does_not() -> None:
    chain = oracle.markov(6, 8)

    def token_changes(name: str) -> int:
        start = State.blank(64, 8)
        counts, before = Rewrites.of(start), start
        for state in sampler(name).steps(Blurred(chain), start, generator=stream(0)):
            counts, before = counts.after(before, state), state
        return int(counts.token_changes.sum())

    assert token_changes("mdlm@16") == 0
    assert token_changes("mdlm@16:refresh_unmasked=true") > 0


class Blurred(Double):
    """An oracle that trusts a revealed token no more than SNR 2."""

    def __init__(self, truth: oracle.Markov) -> None:
        self.truth, self.codebook, self.snr_max = truth, truth.codebook, 2.0

    def __call__(self, z: Tensor | Endpoints, /, *, at: Tensor | None = None) -> Tensor:
        state = z.z(self.codebook, self.snr_max) if isinstance(z, Endpoints) else z
        return self.truth(state, at=at)


def test_the_shared_order_is_shared_and_the_other_is_not() -> None:
    chain = oracle.markov(6, 8)
    for name, shared in (("roar:shared=true", True), ("roar", False)):
        states = sampler(name).steps(
            chain, State.blank(5, 8), generator=Streams.derive(0, range(5))
        )
        visible = ~next(iter(states)).masked
        assert (visible.sum(dim=1) == 1).all()
        assert bool((visible == visible[:1]).all()) == shared


def test_causal_reveals_from_left_to_right_around_what_is_known() -> None:
    tokens = torch.full((1, 8), -1)
    tokens[0, 2] = 4
    states = list(
        sampler("causal").steps(oracle.markov(6, 8), State.start(tokens), generator=stream(0))
    )
    masked = [state.masked[0].nonzero().flatten().tolist() for state in states]
    assert masked[0] == [1, 3, 4, 5, 6, 7]
    assert masked[1] == [3, 4, 5, 6, 7]
    assert len(states) == 7


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: Ancestral(0), "at least one step, got 0"),
        (lambda: Cap(1.5), r"eta must lie in \[0, 1\], got 1.5"),
        (lambda: Loop(t_on=0.05, t_off=0.5), "0 < t_off < t_on < 1"),
        (lambda: Loop(alpha_on=1.0), "alpha_on=1.0"),
    ],
)
def test_impossible_settings_are_refused(build: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()  # type: ignore[operator]


@pytest.mark.parametrize(
    "name", ["mdlm@16", "fb@16", "remdm-cap@16:eta=0.3", "remdm-rescale@16:eta=0.5"]
)
def test_the_masked_share_follows_the_schedule(name: str) -> None:
    """After every step 1 - α_s of the tokens are masked: 65,536 tokens, 4 standard errors."""
    path = sampler(name)
    states = list(path.steps(Coin(), State.blank(64, 1024), generator=stream(0)))
    for step, state in zip(intervals(Linear(), 16), states, strict=False):
        share, wanted = float(state.masked.double().mean()), 1 - step.alpha_s
        assert abs(share - wanted) < 4 * (wanted * (1 - wanted) / 65_536) ** 0.5 + 1e-9
