"""PRISM: the optimum of its quality, its network, and its samplers against the truth."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import pytest
import torch
from scipy.stats import chi2
from torch import Tensor

import dsl
from dsl.apps.zoo.prism import Prism, PrismLoop, PrismModel, PrismObjective, PrismOptions, lowest
from dsl.conditioning.padding import padded
from dsl.core import oracle
from dsl.core.alpha import Linear
from dsl.core.denoiser import Endpoints, Rated, RatedAtOnce
from dsl.core.streams import Streams, stream
from dsl.core.types import MASK
from dsl.families import mdlm as masking
from dsl.families.mdlm import MdlmShape
from dsl.families.objective import Loss
from dsl.families.registry import FAMILIES
from dsl.models import folder
from dsl.samplers.base import Chain, last
from dsl.samplers.registry import sampler
from dsl.samplers.state import State
from tests.apps.zoo.test_timed import p_value
from tests.conftest import assert_near
from tests.exact_quality import RatedOracle
from tests.exact_times import enumerated
from tests.families.conftest import LENGTH, TOKENS, awake, stirred, untrained
from tests.families.test_conformance import Asked

PRISM, MDLM = FAMILIES["prism"], FAMILIES["mdlm"]
TRUTH = enumerated(oracle.markov(3, 3, sharpness=0.8))
N = 12_000


class Exact(PrismModel):
    """The exact network of a distribution, with shifted log-odds."""

    def __init__(self, truth: oracle.Enumerated, shift: float = 0.0) -> None:
        super().__init__(MdlmShape(truth.vocab_size, hidden_dim=8, n_blocks=1, n_heads=2))
        self.exact, self.shift = RatedOracle(truth), shift

    def forward(self, z: Endpoints, /, *, at: Tensor | None = None) -> Tensor:  # type: ignore[override]
        return self.exact(z, at=at)

    def quality_logits(self, z: Endpoints) -> Tensor:
        return self.exact.quality(z).nan_to_num(0.5).logit().float() + self.shift


def loss(objective: PrismObjective, tokens: Tensor, seed: int = 0) -> Loss:
    places = range(len(tokens))
    found: Loss = objective(tokens, Streams.derive(seed, places), places, len(tokens))
    return found


def masked(tokens: Tensor, generator: torch.Generator) -> Tensor:
    """Mask as training does."""
    _, hidden = masking.masked(Linear(), tokens, generator, range(len(tokens)), len(tokens))
    return tokens.masked_fill(hidden, MASK)


def filled(objective: PrismObjective, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Mask and fill as training does."""
    generator = stream(1)
    shown = masked(tokens, generator)
    return objective.fill(shown, objective.model(Endpoints(shown), at=shown == MASK), generator)


class TestOptimum:
    @pytest.mark.parametrize("top_p", [1.0, 0.6])
    def test_a_filled_token_is_right_with_the_exact_quality(self, top_p: float) -> None:
        """For every text and position, P(right) = P(x_i = y_i | y without i)."""
        tokens = TRUTH.sample(N, generator=stream(0))
        y, at = filled(PrismObjective(Exact(TRUTH), PrismOptions(fill=1, top_p=top_p)), tokens)
        assert (at.sum(dim=1) <= 1).all()
        right = (y == tokens)[at].double()
        rating = RatedOracle(TRUTH).quality(Endpoints(y))[at]
        place = at.nonzero()[:, 1]
        _, cell = torch.cat([y[at.any(dim=1)], place.unsqueeze(1)], 1).unique(
            dim=0, return_inverse=True
        )

        def p_value(said: Tensor) -> float:
            n, hits, wanted, spread = (
                torch.zeros(int(cell.max()) + 1, dtype=torch.float64).index_add(0, cell, each)
                for each in (torch.ones_like(right), right, said, said * (1 - said))
            )
            often = (n >= 30) & (spread > 3)
            assert int(often.sum()) > 30
            z = (hits - wanted)[often].square() / spread[often]
            return float(chi2.sf(float(z.sum()), int(often.sum())))

        assert p_value(rating) > 1e-4
        assert p_value((rating.logit() + 0.3).sigmoid()) < 1e-9

    def test_the_expected_loss_is_the_enumerated_one(self) -> None:
        """Two routes to one number: the mean entropy of the label, by sampling and enumeration."""
        wanted = 0.0
        p = TRUTH.log_weights.softmax(0)
        t = (torch.arange(4000, dtype=torch.float64) + 0.5) / 4000 * 0.999 + 0.001
        for hidden in product([False, True], repeat=3):
            at, k = torch.tensor(hidden), sum(hidden)
            if k == 0:
                continue
            weight = float(((0.999 * t) ** k * (1 - 0.999 * t) ** (3 - k)).mean())
            q = TRUTH(Endpoints(TRUTH.sequences.masked_fill(at, MASK))).softmax(-1)[:, at]
            entropy = -(q * q.log() + (1 - q) * (1 - q).log())
            wanted += weight * float(p @ (q * entropy).sum(-1).mean(-1))
        options = PrismOptions(masked=0.0, fill=1, top_p=1.0)
        tokens = TRUTH.sample(3000, generator=stream(0)).chunk(20)
        means = torch.stack([loss(PrismObjective(Exact(TRUTH), options), x).mean for x in tokens])
        error = float(means.std()) / 20**0.5
        assert abs(float(means.mean()) - wanted) < 4 * error < 0.05

    @pytest.mark.parametrize("shift", [-0.3, 0.3])
    def test_any_other_quality_costs_more(self, shift: float) -> None:
        """With the same draws, so that the difference is accurate."""
        options, tokens = PrismOptions(fill=1), TRUTH.sample(N, generator=stream(0))
        shown = masked(tokens, stream(1))
        logits = TRUTH(Endpoints(shown), at=shown == MASK)
        best, worse = (
            PrismObjective(Exact(TRUTH, by), options).judge(tokens, shown, logits, stream(2))[0]
            for by in (0.0, shift)
        )
        more = (worse - best).sum(dim=1)
        assert float(more.mean()) > 4 * float(more.std()) / N**0.5

    @pytest.mark.parametrize(("fill", "share"), [(1, 1.0), (2, 0.75)])
    def test_tokens_filled_together_have_lower_quality(self, fill: int, share: float) -> None:
        """The two bits 00 and 11: of 00, the first was filled alone or with the other.

        Both are masked with probability 1/3, and 00 is then drawn in a quarter of the cases, right
        in half; the first alone with probability 1/6, and 00 is then half of the cases, right in
        all. So 3/4 of what k = 2 is shown is right where the distribution says 1.
        """
        truth = oracle.two_bit()
        tokens = truth.sample(N, generator=stream(0))
        y, at = filled(PrismObjective(Exact(truth), PrismOptions(fill=fill, top_p=1.0)), tokens)
        here = at[:, 0] & (y == 0).all(dim=1)
        right = (y == tokens)[here, 0].double()
        assert abs(float(right.mean()) - share) <= 4 * (share * (1 - share) / len(right)) ** 0.5


class TestObjective:
    def test_its_masked_half_is_the_loss_of_a_masked_model(self) -> None:
        network, places = awake(PRISM), range(64)
        ours = loss(PRISM.objective(network, PrismOptions()), TOKENS)
        theirs = MDLM.objective(network, MDLM.Options())(
            TOKENS, Streams.derive(0, places), places, 64
        )
        for name in ("all", "masked"):
            assert [float(x) for x in ours.parts[name]] == [float(x) for x in theirs.parts[name]]
        only = loss(PRISM.objective(network, PrismOptions(masked=0.0)), TOKENS)
        assert_near(ours.mean, 0.5 * theirs.mean + only.mean)

    def test_untrained_every_label_costs_log_2(self) -> None:
        parts = loss(PRISM.objective(untrained(PRISM), PrismOptions(top_p=1.0)), TOKENS).parts
        value, count = parts["quality"]
        assert float(value / count) == pytest.approx(math.log(2))
        right, _ = parts["right"]
        assert float(right / count) == pytest.approx(1 / 5, abs=0.12)  # of five letters

    @pytest.mark.parametrize("fill", [1, 2, 8])
    def test_it_fills_k_masks_and_nothing_else(self, fill: int) -> None:
        objective = PRISM.objective(awake(PRISM), PrismOptions(fill=fill))
        assert isinstance(objective, PrismObjective)
        hidden = torch.rand(64, LENGTH, generator=stream(0)) < 0.6
        shown = TOKENS.masked_fill(hidden, MASK)
        logits = objective.model(Endpoints(shown), at=hidden)
        y, at = objective.fill(shown, logits, Streams.derive(0, range(64)))
        assert torch.equal(at.sum(dim=1), hidden.sum(dim=1).clamp(max=fill))
        assert (hidden | ~at).all() and torch.equal(y == MASK, hidden & ~at)
        assert torch.equal(y[~hidden], TOKENS[~hidden])

    def test_tokens_are_filled_from_the_logits_of_their_own_place(self) -> None:
        """A network that predicts every masked token fills in the truth."""
        objective = PRISM.objective(awake(PRISM), PrismOptions(fill=3))
        assert isinstance(objective, PrismObjective)
        hidden = torch.rand(64, LENGTH, generator=stream(0)) < 0.6
        sure = 50 * torch.nn.functional.one_hot(TOKENS[hidden], 5).float()
        y, at = objective.fill(TOKENS.masked_fill(hidden, MASK), sure, Streams.derive(0, range(64)))
        assert torch.equal(y[at], TOKENS[at])

    def test_more_draws_are_an_average(self) -> None:
        one, four = (PRISM.objective(awake(PRISM), PrismOptions(draws=draws)) for draws in (1, 4))
        few, many = loss(one, TOKENS).parts, loss(four, TOKENS).parts
        assert float(many["quality"][1]) == 4 * float(few["quality"][1])
        assert float(many["masked"][1]) == float(few["masked"][1])
        assert torch.isfinite(loss(four, TOKENS).mean)

    @pytest.mark.parametrize(
        "options", [{"fill": 0}, {"draws": 0}, {"masked": -1.0}, {"top_p": 0.0}]
    )
    def test_impossible_options_are_refused(self, options: dict[str, float]) -> None:
        with pytest.raises(ValueError, match="must"):
            PrismOptions(**options)  # type: ignore[arg-type]


class TestNetwork:
    @torch.no_grad()
    def test_untrained_every_quality_is_one_half(self) -> None:
        assert_near(untrained(PRISM).quality(Endpoints(TOKENS)), torch.full((64, LENGTH), 0.5))

    @torch.no_grad()
    @pytest.mark.parametrize("llama", [None, {"mlp_dim": 24}])
    def test_it_is_a_masked_network_with_one_more_row(self, llama: dict[str, int] | None) -> None:
        base, ours = awake(MDLM, llama=llama), awake(PRISM, llama=llama)
        added = ours.state_dict().keys() - base.state_dict().keys()
        assert sum(ours.state_dict()[name].numel() for name in added) == 2 * 16 + 1
        ours.load_state_dict(base.state_dict(), strict=False)
        shown = Endpoints(TOKENS.masked_fill(torch.rand(64, LENGTH) < 0.5, MASK))
        assert torch.equal(ours(shown), base(shown))

    @torch.no_grad()
    def test_one_call_returns_the_results_of_two(self) -> None:
        network = awake(PRISM)
        assert isinstance(network, RatedAtOnce)
        at = torch.rand(64, LENGTH, generator=stream(0)) < 0.5
        shown = Endpoints(TOKENS.masked_fill(at, MASK))
        logits, quality = network.rated(shown, at=at)
        assert_near(logits, network(shown, at=at))
        assert_near(quality, network.quality(shown))
        assert quality.min() >= 0 and quality.max() <= 1 and quality.std() > 0.01


class TestBeginning:
    def test_training_can_start_from_a_masked_model(self, tmp_path: Path) -> None:
        """The quality head is untrained, everything else is the masked model."""
        changes = ["objective=mdlm"]
        first = dsl.train("cyclic", tmp_path / "mdlm", changes=changes, smoke=True, cache=tmp_path)
        changes = ["objective=prism", "trainer.steps=1", "optimizer.lr=1e-12"]
        more = dsl.train(
            "cyclic", tmp_path / "prism", changes=changes, smoke=True, cache=tmp_path,
            init=first.model,
        )  # fmt: skip
        base, ours = (dsl.load(run.model).denoiser for run in (first, more))
        assert type(ours) is PrismModel and not isinstance(base, PrismModel)
        tokens = torch.tensor([[0, MASK, 2, 3, MASK, 5, 6]])
        assert_near(ours(Endpoints(tokens)), base(Endpoints(tokens)))
        assert_near(ours.quality(Endpoints(tokens)), torch.full((1, 7), 0.5))

    def test_other_missing_tensors_are_refused(self, tmp_path: Path) -> None:
        network = awake(PRISM)
        PRISM.write(network, tmp_path)
        config, tensors = folder.read_config(tmp_path), network.state_dict()
        folder.save(tmp_path, config, {n: t for n, t in tensors.items() if "head" not in n})
        folder.load_tensors(tmp_path, awake(PRISM), fresh=PRISM.fresh)
        with pytest.raises(ValueError, match="missing quality_head"):
            folder.load_tensors(tmp_path, awake(PRISM))
        gone = "backbone.blocks.0.attn_out.weight"
        folder.save(tmp_path, config, {n: t for n, t in tensors.items() if n != gone})
        with pytest.raises(ValueError, match=f"missing {gone}"):
            folder.load_tensors(tmp_path, awake(PRISM), fresh=PRISM.fresh)


DRAWS = 6_000
TRUTH = enumerated(oracle.markov(3, 3, sharpness=0.8))
CYCLE = oracle.cyclic(7)


def in_parts(truth: oracle.Enumerated, first: int) -> oracle.Enumerated:
    """The law of revealing `first` random positions at once, and then the rest at once."""
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
    """A text without pinned tokens."""
    return replace(State.start(tokens), fixed=torch.zeros_like(tokens, dtype=torch.bool))


def misprinted(n: int, errors: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Rotations with wrong tokens: the truth, the text, and the wrong positions."""
    generator = stream(3)
    truth = CYCLE.sample(n, generator=generator)
    wrong = torch.rand(n, 7, generator=generator).argsort(dim=1) < errors
    shift = torch.randint(1, 7, (n, 7), generator=generator)
    return truth, torch.where(wrong, (truth + shift) % 7, truth), wrong


class TestWithoutRemasking:
    def test_one_at_a_time_draws_from_the_truth(self) -> None:
        """Any order is exact."""
        network = RatedOracle(TRUTH)
        end = last(sampler("prism@3:eta=0"), network, State.blank(DRAWS, 3), generator=stream(1))
        assert p_value(TRUTH, end.tokens) > 1e-4
        assert not network.shown and (end.nfe == 3).all(), "quality is not computed"

    @pytest.mark.parametrize(("steps", "first"), [(1, 3), (2, 2)])
    def test_fewer_steps_reveal_several_tokens_at_once(self, steps: int, first: int) -> None:
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
    def test_remasking_keeps_the_number_of_masks(self, eta: float, on: float) -> None:
        """Remasked tokens are replaced by more reveals in the same step."""
        network, remasked, before = RatedOracle(CYCLE), 0, State.blank(40, 7)
        for state in Prism(5, eta=eta, on=on).steps(network, before, generator=stream(0)):
            assert (state.masked.sum(dim=1) == 7 * (5 - state.step) // 5).all()
            gone = ~before.masked & state.masked
            assert not gone.any() or state.step > 5 * on
            remasked, before = remasked + int(gone.sum()), state
        assert (remasked > 0) is (eta > 0)

    def test_the_number_of_remasked_tokens_follows_eta(self) -> None:
        """It is binomial with probability σ = min(η, left / visible)."""
        tokens = torch.zeros(4000, 40, dtype=torch.long)
        tokens[:, :20] = MASK
        path, network = Prism(2, eta=0.2, on=0.0), Flat()
        state = next(path.steps(network, free(tokens), generator=stream(0)))
        gone = (state.masked[:, 20:].sum(dim=1)).double()  # binomial(20, 0.2), cut at 10 left
        assert abs(float(gone.mean()) - 4.0) < 4 * (3.2 / 4000) ** 0.5
        assert float(gone.var()) == pytest.approx(3.2, rel=0.15)

    def test_the_worst_are_remasked_first(self) -> None:
        """Tokens that contradict the others are remasked before those that fit."""
        _, text, wrong = misprinted(200)
        masks = wrong.roll(3, dims=1) | wrong.roll(4, dims=1)
        start = free(text.masked_fill(masks, MASK))
        path = Prism(2, eta=1.0, on=0.0)
        state = next(path.steps(RatedOracle(CYCLE), start, generator=stream(0)))
        gone = state.masked & ~masks
        assert gone.any() and not (gone & ~wrong).any()

    def test_ties_are_broken_at_random(self) -> None:
        score = torch.zeros(9000, 4, dtype=torch.float64)
        luck = torch.rand(9000, 4, dtype=torch.float64, generator=stream(0))
        among = torch.tensor([True, True, False, True]).expand(9000, 4)
        chosen = lowest(score, among, torch.ones(9000, dtype=torch.long), ties=luck)
        assert (chosen.sum(dim=1) == 1).all() and not chosen[:, 2].any()
        share = chosen.double().mean(dim=0)[[0, 1, 3]]
        assert (share - 1 / 3).abs().max() < 4 * (2 / 9 / 9000) ** 0.5
        score[:, 3] = -1.0
        assert lowest(score, among, torch.ones(9000, dtype=torch.long), ties=luck)[:, 3].all()

    def test_nan_quality_is_refused(self) -> None:
        network = Flat(torch.nan)
        with pytest.raises(ValueError, match="NaN as the quality"):
            last(PrismLoop(2), network, free(torch.zeros(1, 4, dtype=torch.long)))

    def test_a_network_without_quality_is_refused(self) -> None:
        with pytest.raises(ValueError, match="a network that rates its tokens"):
            last(Prism(2), CYCLE, State.blank(1, 7))


class Flat(RatedOracle):
    """A network with uniform logits and constant quality."""

    def __init__(self, rating: float = 0.5) -> None:
        super().__init__(oracle.markov(6, 40, sharpness=0.0))
        self.rating = rating

    def quality(self, z: Endpoints) -> Tensor:
        return torch.full(z.tokens.shape, self.rating)


class TestLoop:
    @pytest.mark.parametrize("errors", [1, 2])
    def test_wrong_tokens_are_masked_and_corrected(self, errors: int) -> None:
        """The exact quality is 0 for wrong tokens and 1 for the others."""
        truth, text, wrong = misprinted(200, errors)
        path = PrismLoop(4, share=errors / 7)
        states = list(path.steps(RatedOracle(CYCLE), free(text), generator=stream(0)))
        assert torch.equal(states[0].masked, wrong)
        assert torch.equal(states[-1].tokens, truth)
        assert [int(state.masked.sum()) for state in states] == [200 * errors] * 3 + [0]

    def test_the_loop_corrects_contradictions(self) -> None:
        """Tokens drawn at once contradict each other; after the loop every text is valid."""
        network, start = RatedOracle(CYCLE), State.blank(300, 7)
        path = sampler("prism-loop@33:loop=0.95,eta=0")
        assert isinstance(path, Chain) and [p.num_steps for p in path.samplers] == [2, 31]  # type: ignore[attr-defined]
        valid = {
            state.stage: float(CYCLE.log_prob(state.tokens).isfinite().double().mean())
            for state in path.steps(network, start, generator=stream(0))
        }
        assert valid[0] < 0.1 and valid[1] == 1.0

    def test_pinned_tokens_stay_for_any_quality(self) -> None:
        _, text, wrong = misprinted(100)
        start = replace(free(text), fixed=wrong)
        for state in PrismLoop(5, share=0.5).steps(RatedOracle(CYCLE), start, generator=stream(0)):
            assert torch.equal(state.tokens[wrong], text[wrong])
        pinned = State.start(torch.where(wrong, text, MASK))
        path = Prism(4, eta=1.0, on=0.0)
        for state in path.steps(RatedOracle(CYCLE), pinned, generator=stream(0)):
            assert torch.equal(state.tokens[wrong], text[wrong])

    @pytest.mark.parametrize("name", ["prism@12:eta=1,on=0", "prism-loop@6", "prism-loop@16"])
    def test_remasking_the_worst_sharpens_the_distribution(self, name: str) -> None:
        """Even with exact logits and quality, likely texts are drawn too often."""
        end = last(sampler(name), RatedOracle(TRUTH), State.blank(DRAWS, 3), generator=stream(1))
        assert p_value(TRUTH, end.tokens) < 1e-9
        log_p = TRUTH.log_prob(TRUTH.sequences)
        drawn, mean = TRUTH.log_prob(end.tokens), float((log_p.exp() * log_p).sum())
        assert float(drawn.mean()) > mean + 5 * float(drawn.std()) / DRAWS**0.5

    def test_the_loop_has_its_share_of_the_steps(self) -> None:
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
    def test_one_forward_returns_both(self) -> None:
        """A sequence that is rated and filled in one step counts one call."""
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

    def test_padded_texts_are_rated_too(self) -> None:
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
