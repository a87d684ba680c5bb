"""What every family keeps, so that recipes, loading, scoring and sampling can ask any of them."""

from __future__ import annotations

import json
import math
import re
from dataclasses import fields, is_dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from dsl.conditioning.automaton import Automaton
from dsl.conditioning.hints import Known, Unknown
from dsl.core.denoiser import Clocked, Continuous, Network
from dsl.core.streams import Streams
from dsl.evaluation.calibration import calibrate
from dsl.evaluation.scoring import score
from dsl.evaluation.validation import validator
from dsl.families import registry as table
from dsl.families.base import ONCE_SHARED, Family
from dsl.families.levels import Level
from dsl.families.objective import Loss, Objective
from dsl.families.registry import FAMILIES
from dsl.generation import Request, Sink, generate, run, walk
from dsl.generation.request import require_fit
from dsl.likelihoods.estimate import Effort, Estimator, Kind
from dsl.models.config import ModelConfig
from dsl.samplers import registry as presets
from dsl.samplers.registry import SAMPLERS, example
from tests.conftest import assert_near
from tests.families.conftest import (
    LENGTH,
    SIZES,
    TOKENS,
    VOCABULARY,
    awake,
    loaded,
    untrained,
)

ANYTHING = Automaton(torch.zeros(1, VOCABULARY, dtype=torch.long), torch.tensor([True]))
"""A form that every text has."""


def objective(family: Family, network: Any) -> Objective:
    return family.objective(network, family.Options())


def loss(made: Objective, places: range, seed: int = 0) -> Loss:
    rows = TOKENS[places.start : places.stop]
    found: Loss = made(rows, Streams.derive(seed, places), places, len(TOKENS))
    return found


class TestDescription:
    def test_it_says_what_it_is(self, family: Family) -> None:
        assert FAMILIES[family.name] is family
        assert 10 < len(family.summary) < 90 and "\n" not in family.summary
        assert Network in family.protocol.__mro__
        assert family.validated
        assert is_dataclass(family.Options)
        assert "kind" not in {field.name for field in fields(family.Options)}
        family.Options()  # a recipe may say no more than the name

    def test_two_of_one_name_are_refused(self, family: Family) -> None:
        table.register(family)  # itself, again, is no other
        with pytest.raises(ValueError, match=f"there is a family {family.name!r} already"):
            table.register(type(family)())

    def test_a_shape_is_completed_and_foreign_fields_left_aside(self, family: Family) -> None:
        """One recipe serves all: it may say whatever any of them had."""
        foreign = ModelConfig(9, codebook_dim=8, codebook="simplex", **SIZES).to_dict()
        chosen = {k: v for k, v in foreign.items() if k not in ("vocab_size", "model_length")}
        shape = family.shape(9, LENGTH, chosen)
        assert type(shape) is family.Shape
        assert (shape.vocab_size, shape.model_length) == (9, LENGTH)
        own = {name: value for name, value in shape.to_dict().items() if name in chosen}
        assert own == {name: chosen[name] for name in own} and SIZES.keys() & own.keys()
        assert family.shape(9, LENGTH, SIZES).vocab_size == 9

    def test_a_mistyped_field_is_refused(self, family: Family) -> None:
        with pytest.raises(ValueError, match="unknown key 'hiden_dim'"):
            family.shape(VOCABULARY, LENGTH, {**SIZES, "hiden_dim": 16})
        with pytest.raises(ValueError, match="expected int, got 'wide'"):
            family.shape(VOCABULARY, LENGTH, {**SIZES, "hidden_dim": "wide"})


class TestNetwork:
    def test_it_knows_its_size_and_its_place(self, family: Family) -> None:
        network = awake(family)
        assert isinstance(network, Network)
        assert (network.vocab_size, str(network.device)) == (VOCABULARY, "cpu")
        assert len(repr(network).splitlines()) <= 3

    def test_untrained_it_is_uniform(self, family: Family) -> None:
        network = untrained(family, evidence_logits=False)  # what a state says itself is no bias
        for level in family.levels(network):
            logits, _ = level.ask(network, TOKENS, generator=Streams.derive(0, range(64)))
            assert_near(logits.softmax(-1), torch.full_like(logits, 1 / VOCABULARY))

    @pytest.mark.parametrize("half", [False, True])
    def test_written_it_reads_back_equal(self, family: Family, half: bool, tmp_path: Path) -> None:
        network = awake(family)
        family.write(network, tmp_path, half=half)
        found, again = table.read(tmp_path)
        assert found is family and type(again) is type(network) and not again.training
        assert again.config == network.config
        own = network.state_dict()
        assert own.keys() == again.state_dict().keys()
        for name, tensor in again.state_dict().items():
            if half:
                torch.testing.assert_close(tensor, own[name], rtol=1e-3, atol=1e-6)
            else:
                assert torch.equal(tensor, own[name])

    def test_what_was_written_while_all_shared_one_config_is_read(
        self, family: Family, tmp_path: Path
    ) -> None:
        network, path = awake(family), tmp_path / "config.json"
        family.write(network, tmp_path)
        config = json.loads(path.read_text())
        path.write_text(json.dumps(dict.fromkeys(ONCE_SHARED, 1) | config))
        assert table.read(tmp_path)[1].config == network.config
        path.write_text(json.dumps(config | {"colour": 1}))
        with pytest.raises(ValueError, match="unknown key 'colour'"):
            table.read(tmp_path)


class TestObjective:
    def test_it_trains_this_network_alone(self, family: Family) -> None:
        network = awake(family)
        made = objective(family, network)
        assert isinstance(made, Objective) and made.model is network
        loss(made, range(64)).mean.backward()
        assert {id(p) for p in made.parameters()} == {id(p) for p in network.parameters()}
        idle = [n for n, p in network.named_parameters() if p.requires_grad and p.grad is None]
        assert not idle

    @pytest.mark.parametrize("cuts", [(0, 1, 63, 64), tuple(range(0, 65, 8))])
    def test_how_a_batch_is_cut_makes_no_difference(
        self, family: Family, cuts: tuple[int, ...]
    ) -> None:
        """Sums, counts, every part and every gradient add up to those of the whole."""
        network = awake(family)
        made = objective(family, network)
        whole = loss(made, range(64))
        whole.sum.backward()
        wanted = {name: p.grad.clone() for name, p in network.named_parameters()}
        network.zero_grad()
        pieces = [loss(made, range(*ends)) for ends in pairwise(cuts)]
        for piece in pieces:
            piece.sum.backward()
        assert_near(sum(piece.sum for piece in pieces), whole.sum)
        assert sum(float(piece.count) for piece in pieces) == float(whole.count) > 0
        assert all(piece.parts.keys() == whole.parts.keys() for piece in pieces)
        for name, (value, count) in whole.parts.items():
            added = [sum(float(piece.parts[name][i]) for piece in pieces) for i in (0, 1)]
            assert added == pytest.approx([float(value), float(count)], rel=1e-4)
        largest = max(float(gradient.abs().max()) for gradient in wanted.values())
        for name, parameter in network.named_parameters():
            near = {"atol": 1e-5 * largest, "rtol": 1e-4}
            torch.testing.assert_close(parameter.grad, wanted[name], **near)

    def test_its_noise_is_new_in_every_step(self, family: Family) -> None:
        made = objective(family, awake(family))
        found = [float(loss(made, range(64), seed).sum.detach()) for seed in (0, 0, 1)]
        assert found[0] == found[1]
        random = not all(e.kind == "exact" for e in family.estimators(made.model, Effort(8)))
        assert (found[0] != found[2]) is random


class TestLikelihood:
    def test_estimators_have_names_of_their_own(self, family: Family) -> None:
        estimators = family.estimators(awake(family), Effort(8))
        labels = [estimator.label for estimator in estimators]
        assert len(set(labels)) == len(labels) and set(family.validated) <= set(labels)
        for estimator in estimators:
            assert isinstance(estimator, Estimator) and estimator.kind in get_args(Kind)

    @pytest.mark.parametrize("budget", [4, 7, 24])
    def test_every_estimate_is_finite_and_within_its_budget(
        self, family: Family, budget: int
    ) -> None:
        """Each replicate splits -log P among the tokens; none takes more calls than it may."""
        network = awake(family)
        if budget < 8 and getattr(network, "self_conditioned", False):
            with pytest.raises(ValueError, match=f"a budget of at least 8, got {budget}"):
                family.estimators(network, Effort(budget))
            return
        for estimator in family.estimators(network, Effort(budget, batch_size=7)):
            asked = Asked(network)
            streams = Streams.derive(0, range(10))
            found = estimator(network, TOKENS[:10], generator=streams)
            asked.remove()
            assert found.values.isfinite().all() and (found.nats > 0).all()
            assert found.values.shape[::2] == (10, LENGTH)
            assert 0 < asked.sequences <= budget * 10
            assert (found.values.shape[1] == 1) is (estimator.kind == "exact")

    def test_all_of_them_score_a_text(self, family: Family) -> None:
        report = score(loaded(family), list(TOKENS[:4]), budget=8)
        for estimator in family.estimators(awake(family), Effort(8)):
            assert math.isfinite(report.reading(estimator.label).nats.sum())

    def test_validation_reports_those_it_names_and_leaves_the_mode(self, family: Family) -> None:
        network = awake(family).train()
        found = validator(family, TOKENS[:4])(network)
        assert network.training
        assert found["loss"] == found[family.validated[0]]
        assert set(found) - {"loss"} == {
            name + suffix for name in family.validated for suffix in ("", "_stderr")
        }
        assert found == validator(family, TOKENS[:4])(network)


class Asked:
    """Counts the sequences that a network's blocks are shown."""

    def __init__(self, network: Any) -> None:
        self.sequences = 0
        self.hook = network.backbone.blocks[0].register_forward_hook(self.count)

    def count(self, _: Any, given: tuple[Any, ...], __: Any) -> None:
        self.sequences += len(given[0])

    def remove(self) -> None:
        self.hook.remove()


class TestCalibration:
    def test_every_level_can_be_asked(self, family: Family) -> None:
        network = awake(family)
        levels = family.levels(network)
        assert levels and len({level.label for level in levels}) == len(levels)
        for level in levels:
            assert isinstance(level, Level)
            logits, at = level.ask(network, TOKENS, generator=Streams.derive(0, range(64)))
            assert logits.shape == (int(at.sum()), VOCABULARY) and len(logits) > 0
            assert logits.isfinite().all()

    def test_a_level_is_at_a_given_snr_or_refused(self, family: Family) -> None:
        network = awake(family)
        if not {Continuous, Clocked} & set(family.protocol.__mro__):
            with pytest.raises(ValueError, match="have no continuous states"):
                family.levels_at(network, [2.0])
        else:
            assert [level.label for level in family.levels_at(network, [2.0, 1.0])] == [2.0, 1.0]

    def test_confidence_can_be_judged(self, family: Family) -> None:
        model = loaded(family)
        found = calibrate(model, TOKENS[:8])
        labels = [level.label for level in family.levels(model.denoiser)]
        assert [row.level for row in found] == labels
        assert all(0 <= row.ece <= 1 and math.isfinite(row.bits) for row in found)


class TestSampling:
    @pytest.mark.parametrize("name", SAMPLERS)
    def test_a_sampler_walks_it_or_is_refused_before_it_sets_out(
        self, family: Family, name: str
    ) -> None:
        model, path = loaded(family), presets.sampler(example(name, 3))
        serving = presets.serving(family.protocol)
        if path.asks in family.protocol.__mro__:
            require_fit(model, path)
            for sample in generate(model, 3, sampler=path, batch_size=2):
                assert len(sample.tokens) == LENGTH and set(sample.text) <= set("abcde")
                assert sample.nfe > 0
            return
        with pytest.raises(
            ValueError, match=rf"mine \(family {family.name}\) does not fit"
        ) as refusal:
            require_fit(model, path)
        assert str(refusal.value).endswith(f"Samplers that fit: {', '.join(serving)}")
        with pytest.raises(ValueError, match="Samplers that fit"):
            generate(model, sampler=path)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "around", [{"ending": "unknown"}, {"guidance": 2.0}, {"form": ANYTHING}], ids=str
    )
    def test_what_is_put_around_it_is_asked_or_refused_before_it_sets_out(
        self, family: Family, around: dict[str, Any]
    ) -> None:
        """Unknown text after it, guidance and forms: no sampler meets what it cannot ask."""
        model = replace(loaded(family), documents=True, length=6)
        row = [Known(0), *[Unknown()] * 3]
        for name in SAMPLERS:
            try:
                request = Request(model, presets.sampler(example(name, 3)), [row], **around)
            except ValueError as error:
                assert re.search("does not fit|this sampler asks|only a model", str(error)), name
                continue
            state = walk(next(request.batches()))
            assert not state.masked.any() and int(state.tokens[0, 0]) == 0

    def test_every_step_of_it_can_be_recorded(self, family: Family, tmp_path: Path) -> None:
        """From nothing known to all tokens, calls added up, whatever the network is asked."""
        model = loaded(family)
        for number, name in enumerate(SAMPLERS):
            path = presets.sampler(example(name, 3))
            if path.asks not in family.protocol.__mro__:
                continue
            request = Request(model, path, [[Unknown()] * LENGTH], n=2, batch_size=2)
            trace = tmp_path / f"{number}.jsonl"
            samples = run(request, Sink(tmp_path / f"{number}.out", trace=trace)).samples
            for index, sample in samples.items():
                steps = [row for row in map(json.loads, trace.open()) if row.get("index") == index]
                assert steps[0]["masked_ratio"] == 1 and steps[-1]["masked_ratio"] == 0, name
                assert steps[-1]["nfe"] == sample.nfe
                assert all(one["nfe"] <= other["nfe"] for one, other in pairwise(steps))
                assert all(len(row["snr"]) == LENGTH and min(row["snr"]) >= 0 for row in steps)
                assert len(set(steps[-1]["snr"])) == 1, "all are revealed"

    def test_what_one_network_answers_begins_with_what_its_family_does(
        self, family: Family
    ) -> None:
        assert family.protocol_of(untrained(family)) is family.protocol is loaded(family).protocol

    def test_something_serves_it(self, family: Family) -> None:
        assert presets.serving(family.protocol)
