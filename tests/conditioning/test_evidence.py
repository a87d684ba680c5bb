from __future__ import annotations

import tracemalloc
from dataclasses import fields
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from dsl.conditioning.evidence import (
    Allowed,
    Confident,
    Evidence,
    Hint,
    Known,
    NBest,
    Observed,
    Unknown,
    given,
    log_likelihood,
)
from dsl.core import oracle, sphere
from dsl.core.denoiser import Continuous, Denoiser, Endpoints
from dsl.core.streams import stream
from dsl.families.mdlm import MdlmModel, MdlmShape
from dsl.samplers.base import last
from dsl.samplers.registry import sampler
from dsl.samplers.state import State

KINDS: dict[str, Hint | tuple[Hint, ...]] = {
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
    return vectors(row, CHAIN.codebook), Evidence.of([row], CHAIN)


def vectors(row: list[Hint | tuple[Hint, ...]], codebook: Tensor) -> Tensor:
    """Return ℓ of every position, each hint's written out in full."""
    several = [hints if isinstance(hints, tuple) else (hints,) for hints in row]
    return torch.stack([log_likelihood(hints, codebook) for hints in several])


def lone(codebook: Tensor) -> oracle.Enumerated:
    """Return a uniform prior over single tokens."""
    v = len(codebook)
    return oracle.Enumerated(torch.arange(v).unsqueeze(1), torch.zeros(v).double(), codebook)


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
    flat = lone(sphere.simplex(27, dtype=torch.float64))
    hints = Evidence.of([[NBest({4: 0.62, 9: 0.31})]], flat)
    p = given(flat, hints)(torch.zeros(1, 1, 26).double()).softmax(-1)[0, 0]
    assert float(p[4]) == pytest.approx(0.62)
    assert float(p[9]) == pytest.approx(0.31)
    assert float(p[0]) == pytest.approx(0.07 / 25)


def test_evidence_adds() -> None:
    """Two independent hints about a token are the sum of their states."""
    flat = lone(CHAIN.codebook)
    first, second = Confident(0, 0.6), NBest({1: 0.5, 2: 0.3})
    both = Evidence.of([[(first, second)]], flat).e
    one, two = Evidence.of([[first]], flat).e, Evidence.of([[second]], flat).e
    assert both is not None and one is not None and two is not None
    torch.testing.assert_close(both, one + two)


def test_an_observation_is_its_endpoint_state() -> None:
    found = Evidence.of([[Observed(1, 3.0), Known(2), Unknown(), Unknown()]], CHAIN)
    assert found.e is not None
    torch.testing.assert_close(found.e[0, 0], 3.0 * CHAIN.codebook[1])
    assert found.pinned.tolist() == [[-1, 2, -1, -1]]
    assert not found.e[0, 1:].any()


def test_hard_tokens_cost_no_vector() -> None:
    """Masks and tokens alone become pins, whatever the size of the vocabulary."""
    found = Evidence.of([[Known(0), Unknown(), (Known(2), Confident(2, 0.3))]], CHAIN)
    assert found.e is None and found.residual is None
    assert found.pinned.tolist() == [[0, -1, 2]]


@pytest.mark.parametrize("kind", KINDS)
def test_chosen_sequences_keep_their_evidence(kind: str) -> None:
    """Taking rows of a batch of evidence is collecting the hints of those rows."""
    rows = [[KINDS[kind], Unknown(), Allowed((0, 1)), Known(2)], [Unknown()] * 4]
    whole = Evidence.of(rows, CHAIN).take([1, 0, 0])
    wanted = Evidence.of([rows[1], rows[0], rows[0]], CHAIN)
    tokens = torch.full((3, 4), -1)
    torch.testing.assert_close(
        given(CHAIN, whole)(Endpoints(tokens)), given(CHAIN, wanted)(Endpoints(tokens))
    )


class TestBelowTheSimplex:
    """With d < v - 1, e is a projection and the residual corrects the position's own logits."""

    codebook = sphere.random(20, 4, generator=torch.Generator().manual_seed(3)).double()

    @pytest.mark.parametrize(
        "hint", [Confident(3, 0.9), NBest({3: 0.5, 4: 0.4}), Allowed((1, 2, 3)), Known(5)]
    )
    def test_the_position_itself_stays_exact(self, hint: Hint) -> None:
        """For one hinted position, its own posterior is the exact one."""
        log_pi = torch.randn(20, generator=torch.Generator().manual_seed(4)).double()
        toy = oracle.Enumerated(torch.arange(20).unsqueeze(1), log_pi, self.codebook)
        hints = Evidence.of([[hint]], toy)
        assert hints.residual is not None or hints.pinned[0, 0] == 5
        z = torch.zeros(1, 1, 4).double()
        wanted = toy.tilt(vectors([hint], self.codebook))(z).softmax(-1)
        torch.testing.assert_close(given(toy, hints)(z).softmax(-1), wanted, atol=1e-9, rtol=0)

    def test_the_state_leans_to_the_token(self) -> None:
        """The other positions see e alone: it must favour what was read."""
        hints = Evidence.of([[Confident(3, 0.9)]], lone(self.codebook))
        assert hints.e is not None
        assert (hints.e[0, 0] @ self.codebook.T).argmax() == 3


@pytest.mark.parametrize(
    "row, message",
    [
        ([Known(3)], "ids must lie in 0 … 2, got \\[3\\]"),
        ([Confident(3, 0.5)], "ids must lie in 0 … 2, got 3 … 3"),
        ([(Known(0), Allowed((1, 2)))], "contradicts itself"),
        ([(Known(0), Known(1))], "contradicts itself"),
        ([(Known(0), NBest({1: 1.0}))], "contradicts itself"),
        ([(Allowed((0,)), Allowed((1, 2)))], "position 0 contradicts itself"),
    ],
)
def test_impossible_evidence_is_refused(row: list[Hint], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Evidence.of([row], CHAIN)


def test_evidence_must_fit_the_batch() -> None:
    hints = Evidence.of([[Unknown()] * 4] * 2, CHAIN)
    with pytest.raises(ValueError, match="evidence about 2 sequences cannot condition 3"):
        given(CHAIN, hints)(torch.zeros(3, 4, 2).double())


def test_ragged_batches_are_refused() -> None:
    with pytest.raises(ValueError, match=r"one length, got \[1, 2\]"):
        Evidence.of([[Unknown()], [Unknown(), Unknown()]], CHAIN)


class TestPins:
    """Tokens that are known for certain: no vector, no matrix, and the exact posterior."""

    ROWS: ClassVar[dict[str, list[Hint | tuple[Hint, ...]]]] = {
        "one": [Unknown(), Known(1), Unknown(), Unknown()],
        "two": [Known(2), Unknown(), Unknown(), Known(0)],
        "all": [Known(2), Known(1), Known(0), Known(0)],
        "with soft": [Known(2), Unknown(), Confident(1, 0.7), Allowed((0, 2))],
        "said twice": [Unknown(), (Known(1), Confident(1, 0.4), Known(1)), Unknown(), Unknown()],
    }

    @pytest.mark.parametrize("row", ROWS)
    @pytest.mark.parametrize("truth", [CHAIN, LISTED], ids=["markov", "enumerated"])
    def test_a_pinned_oracle_is_the_tilted_one(self, truth: oracle.Oracle, row: str) -> None:
        """On continuous states, at endpoints, and at endpoints that carry evidence of their own."""
        hints = Evidence.of([self.ROWS[row]], truth)
        exact = LISTED.tilt(vectors(self.ROWS[row], CHAIN.codebook))
        tokens = torch.tensor([[-1, -1, 0, -1], [-1, -1, -1, -1], [-1, 1, -1, 0]])
        e = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(1)).double()
        if row in ("two", "all", "with soft"):
            tokens[tokens != -1] = -1  # what is revealed must be possible
        for z in (e, Endpoints(tokens), Endpoints(tokens, e)):
            ours, wanted = given(truth, hints)(z).softmax(-1), exact(z).softmax(-1)
            torch.testing.assert_close(ours, wanted, atol=1e-9, rtol=0)

    def test_a_pin_holds_whatever_the_state_says(self) -> None:
        """The state of a pinned position is not looked at, continuous or not."""
        hints = Evidence.of([[Unknown(), Known(1), Unknown(), Unknown()]], CHAIN)
        loud = torch.zeros(1, 4, 2).double()
        loud[0, 1] = 300 * CHAIN.codebook[2]
        masks = torch.full((1, 4), -1)
        wrong = masks.clone()
        wrong[0, 1] = 2
        pinned = given(CHAIN, hints)
        wanted = pinned(Endpoints(masks))
        for z in (loud, Endpoints(masks, loud), Endpoints(wrong)):
            torch.testing.assert_close(pinned(z), wanted)

    @pytest.mark.parametrize("rows", [("one", "two"), ("two", "one"), ("with soft", "said twice")])
    def test_pins_upon_pins(self, rows: tuple[str, str]) -> None:
        exact, conditioned = LISTED, CHAIN
        for name in rows:
            exact = exact.tilt(vectors(self.ROWS[name], CHAIN.codebook))
            conditioned = given(conditioned, Evidence.of([self.ROWS[name]], conditioned))
        z = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(2)).double()
        for state in (z, Endpoints(torch.full((3, 4), -1))):
            ours, wanted = conditioned(state).softmax(-1), exact(state).softmax(-1)
            torch.testing.assert_close(ours, wanted, atol=1e-9, rtol=0)

    def test_a_thousand_pins_in_a_large_vocabulary_cost_a_thousand_numbers(self) -> None:
        """1,000 positions times 50,000 tokens would be 200 MB; a few kB of ids are enough."""
        stub = Masked(50_000)
        row = [Known(i * 49 % 50_000) if i % 10 else Unknown() for i in range(1000)]
        tracemalloc.start()
        found = Evidence.of([row], stub)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        tensors = [getattr(found, field.name) for field in fields(found)]
        assert sum(part.numel() for part in tensors if part is not None) == 1000
        assert found.e is None and found.at is None and found.residual is None
        assert peak < 2**20, "Python's own part"
        pinned = torch.tensor([[-1 if i % 10 == 0 else i * 49 % 50_000 for i in range(1000)]])
        assert torch.equal(found.pinned, pinned)

    def test_the_answer_about_free_positions_has_just_their_rows(self) -> None:
        """Asked about ten of a thousand positions, ten rows are made, of whatever vocabulary."""
        stub = Masked(50_000)
        row = [Known(7) if i % 100 else Unknown() for i in range(1000)]
        tokens = torch.full((1, 1000), -1)
        at = torch.tensor([[i % 100 == 0 for i in range(1000)]])
        logits = given(stub, Evidence.of([row], stub))(Endpoints(tokens), at=at)
        assert logits.shape == (10, 50_000)
        (shown,) = stub.asked
        assert ((shown == 7) == ~at).all() and ((shown == -1) == at).all()


class Masked:
    """A network of masks and tokens only: it has no codebook, and remembers what it was shown."""

    device = torch.device("cpu")

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.asked: list[Tensor] = []

    def __call__(self, z: Tensor | Endpoints, /, *, at: Tensor | None = None) -> Tensor:
        assert isinstance(z, Endpoints) and z.e is None
        self.asked.append(z.tokens)
        at = torch.ones_like(z.tokens, dtype=torch.bool) if at is None else at
        shape = (int(at.sum()), self.vocab_size)
        logits = torch.zeros(1, 1).expand(shape)
        return logits if at.sum() < at.numel() else logits.reshape(*at.shape, -1)


class TestMaskedNetworks:
    """A denoiser that is not continuous can be shown tokens, and nothing less certain."""

    def network(self) -> MdlmModel:
        network = MdlmModel(MdlmShape(5, hidden_dim=8, cond_dim=4, n_blocks=1, n_heads=2)).eval()
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(0.5 * torch.randn_like(parameter))
        assert not isinstance(network, Continuous) and isinstance(network, Denoiser)
        return network

    @torch.no_grad()
    def test_pins_are_tokens_it_is_shown(self) -> None:
        network = self.network()
        hints = Evidence.of([[Unknown(), Known(3), Unknown(), Known(0)]], network)
        conditioned = given(network, hints)
        tokens = torch.tensor([[-1, -1, 2, -1], [-1, -1, -1, -1]])
        shown = tokens.clone()
        shown[:, 1], shown[:, 3] = 3, 0
        wanted = network(Endpoints(shown))
        found = conditioned(Endpoints(tokens))
        free = torch.tensor([True, False, True, False])
        torch.testing.assert_close(found[:, free], wanted[:, free])
        sure = found[:, ~free].softmax(-1)
        assert (sure[:, 0, 3] == 1).all() and (sure[:, 1, 0] == 1).all()
        assert not torch.allclose(found[:, free], network(Endpoints(tokens))[:, free], atol=1e-3)
        assert (conditioned.vocab_size, conditioned.device) == (5, network.device)
        assert not isinstance(conditioned, Continuous)

    @torch.no_grad()
    def test_chosen_rows_are_rows_of_the_whole(self) -> None:
        conditioned = given(
            network := self.network(), Evidence.of([[Unknown(), Known(3), Unknown()]], network)
        )
        at = torch.tensor([[True, True, False], [False, False, False], [False, True, True]])
        z = Endpoints(torch.full((3, 3), -1))
        torch.testing.assert_close(conditioned(z, at=at), conditioned(z)[at])

    def test_a_masked_path_fills_what_is_not_pinned(self) -> None:
        network = self.network()
        hints = Evidence.of([[Known(4), Unknown(), Unknown(), Known(1)]], network)
        end = last(sampler("mdlm@4"), given(network, hints), State.blank(3, 4), generator=stream(0))
        assert (end.tokens[:, 0] == 4).all() and (end.tokens[:, 3] == 1).all()
        assert not end.masked.any()

    @pytest.mark.parametrize("hint", [Confident(1, 0.9), Allowed((0, 1)), Observed(1, 2.0)])
    def test_confidences_are_refused(self, hint: Hint) -> None:
        with pytest.raises(ValueError, match="it takes no confidences, got"):
            Evidence.of([[Unknown(), hint]], self.network())
