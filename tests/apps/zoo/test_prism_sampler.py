"""PRISM's samplers against the truth, and what they do with the rating of each token."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
import torch
from torch import Tensor

from dsl.apps.zoo.prism import Prism, PrismLoop, PrismModel, lowest
from dsl.conditioning.padding import padded
from dsl.core import oracle
from dsl.core.denoiser import Endpoints, Rated, RatedAtOnce
from dsl.core.streams import Streams, stream
from dsl.core.types import MASK
from dsl.families.mdlm import MdlmShape
from dsl.samplers.base import Chain, last
from dsl.samplers.registry import sampler
from dsl.samplers.state import State
from tests.apps.zoo.test_timed import p_value
from tests.exact_quality import RatedOracle
from tests.exact_times import enumerated
from tests.families.conftest import stirred
from tests.families.test_conformance import Asked

DRAWS = 20_000
TRUTH = enumerated(oracle.markov(3, 3, sharpness=0.8))
CYCLE = oracle.cyclic(7)


def in_parts(truth: oracle.Enumerated, first: int) -> oracle.Enumerated:
    """The law of revealing so many at once, at random places, and then the rest at once."""
    laws = []
    for places in combinations(range(truth.length), first):
        seen = torch.full_like(truth.sequences, MASK)
        log_p = torch.zeros(len(seen), dtype=torch.float64)
        for part in (places, [i for i in range(truth.length) if i not in places]):
            rows = truth(Endpoints(seen)).log_softmax(-1)
            own = rows.gather(2, truth.sequences.unsqueeze(-1)).squeeze(-1)
            log_p = log_p + own[:, list(part)].sum(dim=1)
            seen[:, list(part)] = truth.sequences[:, list(part)]
        laws.append(log_p)
    return replace(truth, log_weights=torch.stack(laws).logsumexp(0))


def free(tokens: Tensor) -> State:
    """A text of which nothing is pinned."""
    return replace(State.start(tokens), fixed=torch.zeros_like(tokens, dtype=torch.bool))


def misprinted(n: int, errors: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Rotations with wrong tokens: the truth, the misprint, and where it is one."""
    generator = stream(3)
    truth = CYCLE.sample(n, generator=generator)
    wrong = torch.rand(n, 7, generator=generator).argsort(dim=1) < errors
    shift = torch.randint(1, 7, (n, 7), generator=generator)
    return truth, torch.where(wrong, (truth + shift) % 7, truth), wrong


class TestWithoutRemasking:
    def test_one_at_a_time_draws_from_the_truth(self) -> None:
        """A random order is exact, whichever it is."""
        network = RatedOracle(TRUTH)
        end = last(sampler("prism@3:eta=0"), network, State.blank(DRAWS, 3), generator=stream(1))
        assert p_value(TRUTH, end.tokens) > 1e-4
        assert not network.shown and (end.nfe == 3).all(), "no rating is asked for"

    @pytest.mark.parametrize(("steps", "first"), [(1, 3), (2, 2)])
    def test_fewer_steps_draw_parts_at_once(self, steps: int, first: int) -> None:
        path, network = Prism(steps, eta=0.0), RatedOracle(TRUTH)
        end = last(path, network, State.blank(DRAWS, 3), generator=stream(2))
        law = in_parts(TRUTH, first)
        assert p_value(law, end.tokens) > 1e-4 and p_value(TRUTH, end.tokens) < 1e-9

    def test_a_wrong_network_is_noticed(self) -> None:
        other = RatedOracle(enumerated(oracle.markov(3, 3, seed=1, sharpness=0.8)))
        end = last(sampler("prism@3:eta=0"), other, State.blank(DRAWS, 3), generator=stream(1))
        assert p_value(TRUTH, end.tokens) < 1e-9


class TestRemasking:
    @pytest.mark.parametrize(("eta", "on"), [(0.0, 0.0), (0.3, 0.5), (1.0, 0.0)])
    def test_as_many_are_left_as_without_it(self, eta: float, on: float) -> None:
        """What is taken back is made up for in the same step."""
        network, remasked, before = RatedOracle(CYCLE), 0, State.blank(40, 7)
        for state in Prism(5, eta=eta, on=on).steps(network, before, generator=stream(0)):
            assert (state.masked.sum(dim=1) == 7 * (5 - state.step) // 5).all()
            gone = ~before.masked & state.masked
            assert not gone.any() or state.step > 5 * on
            remasked, before = remasked + int(gone.sum()), state
        assert (remasked > 0) is (eta > 0)

    def test_how_many_follows_eta(self) -> None:
        """Each visible token adds the chance σ = min(η, left / visible) of one more."""
        tokens = torch.zeros(4000, 40, dtype=torch.long)
        tokens[:, :20] = MASK
        path, network = Prism(2, eta=0.2, on=0.0), Flat()
        state = next(path.steps(network, free(tokens), generator=stream(0)))
        gone = (state.masked[:, 20:].sum(dim=1)).double()  # binomial(20, 0.2), cut at 10 left
        assert abs(float(gone.mean()) - 4.0) < 4 * (3.2 / 4000) ** 0.5
        assert float(gone.var()) == pytest.approx(3.2, rel=0.15)

    def test_the_worst_go_first(self) -> None:
        """Of tokens that contradict the others, none is kept before those that fit."""
        _, text, wrong = misprinted(200)
        masks = wrong.roll(3, dims=1) | wrong.roll(4, dims=1)
        start = free(text.masked_fill(masks, MASK))
        path = Prism(2, eta=1.0, on=0.0)
        state = next(path.steps(RatedOracle(CYCLE), start, generator=stream(0)))
        gone = state.masked & ~masks
        assert gone.any() and not (gone & ~wrong).any()

    def test_equal_ones_go_at_random(self) -> None:
        score = torch.zeros(9000, 4, dtype=torch.float64)
        luck = torch.rand(9000, 4, dtype=torch.float64, generator=stream(0))
        among = torch.tensor([True, True, False, True]).expand(9000, 4)
        chosen = lowest(score, among, torch.ones(9000, dtype=torch.long), ties=luck)
        assert (chosen.sum(dim=1) == 1).all() and not chosen[:, 2].any()
        share = chosen.double().mean(dim=0)[[0, 1, 3]]
        assert (share - 1 / 3).abs().max() < 4 * (2 / 9 / 9000) ** 0.5
        score[:, 3] = -1.0
        assert lowest(score, among, torch.ones(9000, dtype=torch.long), ties=luck)[:, 3].all()

    def test_a_rating_that_is_nan_is_refused(self) -> None:
        network = Flat(torch.nan)
        with pytest.raises(ValueError, match="NaN as the quality"):
            last(PrismLoop(2), network, free(torch.zeros(1, 4, dtype=torch.long)))

    def test_a_network_without_a_rating_is_refused(self) -> None:
        with pytest.raises(ValueError, match="a network that rates its tokens"):
            last(Prism(2), CYCLE, State.blank(1, 7))


class Flat(RatedOracle):
    """A network that finds all tokens equally likely, and all equally good."""

    def __init__(self, rating: float = 0.5) -> None:
        super().__init__(oracle.markov(6, 40, sharpness=0.0))
        self.rating = rating

    def quality(self, z: Endpoints) -> Tensor:
        return torch.full(z.tokens.shape, self.rating)


class TestLoop:
    @pytest.mark.parametrize("errors", [1, 2])
    def test_misprints_are_what_is_masked_and_mended(self, errors: int) -> None:
        """The exact rating of a wrong token is nothing, of the others all."""
        truth, text, wrong = misprinted(200, errors)
        path = PrismLoop(4, share=errors / 7)
        states = list(path.steps(RatedOracle(CYCLE), free(text), generator=stream(0)))
        assert torch.equal(states[0].masked, wrong)
        assert torch.equal(states[-1].tokens, truth)
        assert [int(state.masked.sum()) for state in states] == [200 * errors] * 3 + [0]

    def test_what_was_drawn_too_fast_becomes_possible(self) -> None:
        """Tokens drawn at once contradict each other; the loop leaves only texts of the support."""
        network, start = RatedOracle(CYCLE), State.blank(300, 7)
        path = sampler("prism-loop@33:loop=0.95,eta=0")
        assert isinstance(path, Chain) and [p.num_steps for p in path.samplers] == [2, 31]  # type: ignore[attr-defined]
        valid = {
            state.stage: float(CYCLE.log_prob(state.tokens).isfinite().double().mean())
            for state in path.steps(network, start, generator=stream(0))
        }
        assert valid[0] < 0.1 and valid[1] == 1.0

    def test_pinned_tokens_stay_whatever_they_are_rated(self) -> None:
        _, text, wrong = misprinted(100)
        start = replace(free(text), fixed=wrong)
        for state in PrismLoop(5, share=0.5).steps(RatedOracle(CYCLE), start, generator=stream(0)):
            assert torch.equal(state.tokens[wrong], text[wrong])
        pinned = State.start(torch.where(wrong, text, MASK))
        path = Prism(4, eta=1.0, on=0.0)
        for state in path.steps(RatedOracle(CYCLE), pinned, generator=stream(0)):
            assert torch.equal(state.tokens[wrong], text[wrong])

    @pytest.mark.parametrize("name", ["prism@12:eta=1,on=0", "prism-loop@6", "prism-loop@16"])
    def test_taking_the_worst_back_sharpens(self, name: str) -> None:
        """Exact logits and ratings do not make it exact: likely texts are drawn too often."""
        end = last(sampler(name), RatedOracle(TRUTH), State.blank(DRAWS, 3), generator=stream(1))
        assert p_value(TRUTH, end.tokens) < 1e-9
        log_p = TRUTH.log_prob(TRUTH.sequences)
        drawn, mean = TRUTH.log_prob(end.tokens), float((log_p.exp() * log_p).sum())
        assert float(drawn.mean()) > mean + 5 * float(drawn.std()) / DRAWS**0.5

    def test_its_share_of_the_steps(self) -> None:
        assert sampler("prism-loop@1") == Prism(1)
        assert sampler("prism-loop@9:share=0.2") == Chain((Prism(5), PrismLoop(4, share=0.2)))
        for name in (
            "prism-loop@4:loop=1",
            "prism@4:eta=2",
            "prism@4:on=-1",
            "prism-loop@4:share=1",
        ):
            with pytest.raises(ValueError, match="must lie in"):
                sampler(name)


class TestForwards:
    def test_one_forward_tells_both(self) -> None:
        """A sequence that is rated and filled in one step is computed once, and counted once."""
        network = stirred(
            PrismModel(MdlmShape(6, hidden_dim=16, cond_dim=4, n_blocks=1, n_heads=2))
        )
        assert isinstance(network, RatedAtOnce)
        asked = Asked(network)
        end = last(sampler("prism-loop@12:eta=0.5,on=0"), network, State.blank(5, 8),
                   generator=Streams.derive(0, range(5)))  # fmt: skip
        assert asked.sequences == int(end.nfe.sum()) == 60

    def test_two_forwards_count_twice(self) -> None:
        network = RatedOracle(CYCLE)
        assert isinstance(network, Rated) and not isinstance(network, RatedAtOnce)
        tokens = CYCLE.sample(2, generator=stream(0))
        tokens[1, 0] = MASK
        end = last(PrismLoop(3), network, free(tokens), generator=stream(0))
        assert end.nfe.tolist() == [1 + 2 + 1, 2 + 2 + 1]

    def test_text_that_goes_on_is_rated_too(self) -> None:
        chain = oracle.markov(4, 5)
        tokens = torch.tensor([[1, MASK, 3], [0, 2, 2]])
        wrapped = padded(RatedOracle(chain), 2)
        assert isinstance(wrapped, Rated) and not isinstance(wrapped, RatedAtOnce)
        cut = RatedOracle(oracle.markov(4, 3)).quality(Endpoints(tokens))
        torch.testing.assert_close(wrapped.quality(Endpoints(tokens)), cut, equal_nan=True)
        network = stirred(
            PrismModel(MdlmShape(4, hidden_dim=16, cond_dim=4, n_blocks=1, n_heads=2))
        )
        at_once = padded(network, 2)
        assert isinstance(at_once, RatedAtOnce)
        logits, quality = at_once.rated(Endpoints(tokens), at=tokens == MASK)
        torch.testing.assert_close(logits, at_once(Endpoints(tokens), at=tokens == MASK))
        torch.testing.assert_close(quality, at_once.quality(Endpoints(tokens)))
        assert quality.shape == (2, 3)
