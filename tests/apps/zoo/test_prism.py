"""The PRISM family: what its rating converges to, and the masked model that it is put on."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

import pytest
import torch
from scipy.stats import chi2
from torch import Tensor

import dsl
from dsl.apps.zoo.prism import PrismModel, PrismObjective, PrismOptions
from dsl.core import oracle
from dsl.core.alpha import Linear
from dsl.core.denoiser import Endpoints, RatedAtOnce
from dsl.core.streams import Streams, stream
from dsl.core.types import MASK
from dsl.families import mdlm as masking
from dsl.families.mdlm import MdlmShape
from dsl.families.objective import Loss
from dsl.families.registry import FAMILIES
from dsl.models import folder
from tests.conftest import assert_near
from tests.exact_quality import RatedOracle
from tests.exact_times import enumerated
from tests.families.conftest import LENGTH, TOKENS, awake, untrained

PRISM, MDLM = FAMILIES["prism"], FAMILIES["mdlm"]
TRUTH = enumerated(oracle.markov(3, 3, sharpness=0.8))
N = 16_000


class Exact(PrismModel):
    """The network that knows a distribution, its log-odds moved by what a test likes."""

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
    def test_one_filled_token_is_right_as_often_as_the_exact_rating_says(
        self, top_p: float
    ) -> None:
        """However it was chosen: in every text and place, P(right) = P(x_i = y_i | y without i)."""
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
        """Two routes to one number: the entropy of the label, over masks, places and tokens."""
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
    def test_any_other_rating_costs_more(self, shift: float) -> None:
        """Of the same draws, so that the difference is sharp."""
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
    def test_tokens_filled_together_are_trusted_less(self, fill: int, share: float) -> None:
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

    def test_untrained_every_label_costs_a_bit(self) -> None:
        parts = loss(PRISM.objective(untrained(PRISM), PrismOptions(top_p=1.0)), TOKENS).parts
        value, count = parts["quality"]
        assert float(value / count) == pytest.approx(math.log(2))
        right, _ = parts["right"]
        assert float(right / count) == pytest.approx(1 / 5, abs=0.12)  # of five letters

    @pytest.mark.parametrize("fill", [1, 2, 8])
    def test_it_fills_so_many_masks_and_nothing_else(self, fill: int) -> None:
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
        """A network that is sure of every masked token fills in the truth."""
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
    def test_untrained_it_rates_nothing(self) -> None:
        assert_near(untrained(PRISM).quality(Endpoints(TOKENS)), torch.full((64, LENGTH), 0.5))

    @torch.no_grad()
    @pytest.mark.parametrize("llama", [None, {"mlp_dim": 24}])
    def test_it_is_a_masked_network_with_one_row_more(self, llama: dict[str, int] | None) -> None:
        base, ours = awake(MDLM, llama=llama), awake(PRISM, llama=llama)
        added = ours.state_dict().keys() - base.state_dict().keys()
        assert sum(ours.state_dict()[name].numel() for name in added) == 2 * 16 + 1
        ours.load_state_dict(base.state_dict(), strict=False)
        shown = Endpoints(TOKENS.masked_fill(torch.rand(64, LENGTH) < 0.5, MASK))
        assert torch.equal(ours(shown), base(shown))

    @torch.no_grad()
    def test_one_call_tells_what_two_do(self) -> None:
        network = awake(PRISM)
        assert isinstance(network, RatedAtOnce)
        at = torch.rand(64, LENGTH, generator=stream(0)) < 0.5
        shown = Endpoints(TOKENS.masked_fill(at, MASK))
        logits, quality = network.rated(shown, at=at)
        assert_near(logits, network(shown, at=at))
        assert_near(quality, network.quality(shown))
        assert quality.min() >= 0 and quality.max() <= 1 and quality.std() > 0.01


class TestBeginning:
    def test_with_the_weights_of_a_masked_model(self, tmp_path: Path) -> None:
        """The rating begins untrained, everything else where the masked model ended."""
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

    def test_anything_else_that_is_missing_is_refused(self, tmp_path: Path) -> None:
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
