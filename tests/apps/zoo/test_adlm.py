"""ADLM: the two stacks, the choice of anchors, and the objective."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from dsl.apps.zoo.adlm import AdlmModel, AdlmObjective, AdlmOptions, AdlmShape, anchors
from dsl.core.alpha import Linear
from dsl.core.denoiser import Denoiser, Endpoints
from dsl.core.streams import Streams, stream
from dsl.core.types import MASK
from dsl.families.mdlm import MdlmModel, MdlmObjective, MdlmOptions, MdlmShape, masked
from dsl.families.registry import FAMILIES
from dsl.likelihoods.roar import Enumerated
from tests.conftest import assert_near
from tests.families.conftest import SIZES, TOKENS, awake, untrained

ADLM = FAMILIES["adlm"]
PLACES = range(64)


def loss(network: Any, seed: int = 0, **options: Any) -> Any:
    made = AdlmObjective(network, AdlmOptions(**options))
    return made(TOKENS, Streams.derive(seed, PLACES), PLACES, 64)


def bound(network: Any, seed: int = 0) -> Any:
    """MDLM's objective of the same network."""
    made: Any = MdlmObjective(MdlmModel(MdlmShape(5, **SIZES)), MdlmOptions())
    made.model = network
    return made(TOKENS, Streams.derive(seed, PLACES), PLACES, 64)


def some_masked() -> Tensor:
    return TOKENS.masked_fill(torch.rand(TOKENS.shape, generator=stream(3)) < 0.5, MASK)


class TestNetwork:
    def test_with_a_zero_projection_it_is_its_second_stack(self) -> None:
        model = awake(ADLM, n_blocks=3)
        sizes = SIZES | {"n_blocks": 1}
        alone = MdlmModel(MdlmShape(5, **sizes)).eval()
        alone.backbone.load_state_dict(model.backbone.state_dict())
        state = Endpoints(some_masked())
        with torch.no_grad():
            assert (model(state) - alone(state)).abs().max() > 0.01
            model.project.weight.zero_()
            assert torch.equal(model(state), alone(state))

    def test_the_projection_starts_at_zero(self) -> None:
        assert not untrained(ADLM).project.weight.any()

    def test_the_denoiser_reads_the_distribution_of_the_anchors(self) -> None:
        """A shift of all anchor logits changes nothing; a shift of one does."""
        model, state = awake(ADLM), Endpoints(some_masked())
        head = model.anchor.output_layer.linear
        with torch.no_grad():
            before = model(state)
            head.bias += 3.0
            assert_near(model(state), before)
            head.bias[0] += 3.0
            assert (model(state) - before).abs().max() > 0.01

    @pytest.mark.parametrize(("given", "blocks"), [({}, (4, 2)), ({"anchor_blocks": 1}, (1, 5))])
    def test_both_stacks_together_have_the_blocks_of_one(
        self, given: dict[str, int], blocks: tuple[int, int]
    ) -> None:
        sizes = SIZES | {"n_blocks": 6}
        model = AdlmModel(AdlmShape(5, **sizes, **given))
        assert (len(model.anchor.blocks), len(model.backbone.blocks)) == blocks
        weights = [
            sum(parameter.numel() for parameter in network.parameters())
            for network in (model, MdlmModel(MdlmShape(5, **sizes)))
        ]
        own = [model.project, model.anchor.output_layer, model.anchor.sigma_map]
        more = sum(parameter.numel() for module in own for parameter in module.parameters())
        assert weights[0] - weights[1] == more

    @pytest.mark.parametrize("blocks", [-1, 2])
    def test_a_denoiser_without_blocks_is_refused(self, blocks: int) -> None:
        with pytest.raises(ValueError, match=r"anchor_blocks must lie in 0 … n_blocks - 1, got"):
            ADLM.shape(5, 6, SIZES | {"anchor_blocks": blocks})

    def test_it_accepts_masks_and_tokens_only(self) -> None:
        model = awake(ADLM)
        assert isinstance(model, Denoiser)
        with pytest.raises(ValueError, match="reads masks and tokens only"):
            model(torch.zeros(1, 3, 5))
        with pytest.raises(ValueError, match=r"token ids must lie in -1 … 4"):
            model(Endpoints(torch.tensor([[5]])))

    def test_selected_rows_equal_those_of_the_full_output(self) -> None:
        model, tokens = awake(ADLM), some_masked()
        at = tokens == MASK
        at[:7] = False
        with torch.no_grad():
            assert_near(model(Endpoints(tokens), at=at), model(Endpoints(tokens))[at])


class TestAnchors:
    def test_they_are_the_rare_tokens_of_each_sequence(self) -> None:
        tokens = torch.tensor([[0, 0, 0, 1, 1, 2], [2, 2, 2, 2, 2, 0]])
        assert not anchors(tokens, 3, 0).any()
        assert anchors(tokens, 3, 1).int().tolist() == [[0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 0, 1]]
        assert anchors(tokens, 3, 2).int().tolist() == [[0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 0, 1]]
        assert anchors(tokens, 3, 5).all()

    def test_they_permute_with_positions_and_ignore_token_names(self) -> None:
        places, names = torch.randperm(6), torch.randperm(5)
        found = anchors(TOKENS, 5, 1)
        assert 0 < int(found.sum()) < found.numel()
        assert torch.equal(anchors(TOKENS[:, places], 5, 1), found[:, places])
        assert torch.equal(anchors(names[TOKENS], 5, 1), found)
        assert torch.equal(anchors(TOKENS, 5, 1), found)


class TestObjective:
    def test_its_masked_part_is_the_bound_of_mdlm(self) -> None:
        network = awake(ADLM)
        total, count = loss(network).parts["all"]
        assert float(total / count) == pytest.approx(float(bound(network).mean.detach()), rel=1e-6)
        for nothing in ({"weight": 0.0}, {"threshold": 0, "weight": 9.0}):
            assert_near(loss(network, **nothing).mean, bound(network).mean)

    def test_its_expectation_equals_the_estimator(self) -> None:
        """Two routes: the mean loss, with times above 1e-3, and an enumeration of all masks."""
        network, text = awake(ADLM), TOKENS[:1]
        made = AdlmObjective(network, AdlmOptions(weight=0.0))
        batch = text.expand(64, -1)  # the strata of times belong to places of the batch
        with torch.no_grad():
            draws = torch.stack([
                made(batch, Streams.derive(seed, PLACES), PLACES, 64).mean for seed in range(60)
            ])  # fmt: skip
        exact = Enumerated()(network, text).nats.mean() / text.shape[1]
        error = float(draws.std()) / 60**0.5
        assert abs(float(draws.mean()) - float(exact)) < 4 * error + 2e-3 * float(exact)

    def test_untrained_the_anchor_loss_equals_the_bound(self) -> None:
        """If every token is an anchor, each loss is 1 + γ times the uniform bound."""
        found = loss(untrained(ADLM), threshold=6, weight=0.5)
        total, count = found.parts["all"]
        assert float(found.mean.detach()) == pytest.approx(1.5 * float(total / count), rel=1e-5)
        value, masked = found.parts["anchors"]
        assert float(value / masked) == pytest.approx(math.log(5), rel=1e-5)
        assert float(masked) == float(found.parts["masked"][1])

    def test_only_masked_anchors_count(self) -> None:
        """The gradient of the anchor network's head comes from them, each divided by its time."""
        network = awake(ADLM)
        with torch.no_grad():
            network.project.weight.zero_()
        found = loss(network, threshold=1, weight=0.5)
        found.sum.backward()
        at, hidden = masked(Linear(), TOKENS, Streams.derive(0, PLACES), PLACES, 64)
        t = at.t
        rare = hidden & anchors(TOKENS, 5, 1)
        assert 0 < int(rare.sum()) < int(hidden.sum())
        assert int(found.parts["anchors"][1]) == int(rare.sum())
        with torch.no_grad():
            p = network.both(TOKENS.masked_fill(hidden, MASK))[1].softmax(dim=-1)
        error = (p - torch.nn.functional.one_hot(TOKENS, 5)) / t.unsqueeze(-1)
        assert_near(network.anchor.output_layer.linear.bias.grad, 0.5 * error[rare].sum(dim=0))

    def test_the_bound_trains_the_anchors_too(self) -> None:
        """The stacks are trained jointly."""
        network = awake(ADLM)
        loss(network, weight=0.0).sum.backward()
        for parameter in network.anchor.blocks.parameters():
            assert parameter.grad.abs().max() > 0

    def test_the_weight_rises_over_the_ramp_and_stays(self) -> None:
        made = ADLM.objective(untrained(ADLM), AdlmOptions())
        assert made.weight == pytest.approx(3e-3)
        for progress, weight in [(0.0, 0.0), (0.001, 0.001), (0.003, 0.003), (0.9, 0.003)]:
            made.begin(progress)
            assert made.weight == pytest.approx(weight)
        at_once = ADLM.objective(untrained(ADLM), AdlmOptions(ramp=0.0))
        at_once.begin(0.0)
        assert at_once.weight == pytest.approx(3e-3)
        assert not made.own(), "the ramp depends on the step alone"

    @pytest.mark.parametrize("wrong", [{"threshold": -1}, {"weight": -1.0}, {"ramp": 1.5}])
    def test_invalid_options_are_refused(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="threshold and weight must be at least 0"):
            AdlmOptions(**wrong)
