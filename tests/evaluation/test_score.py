"""Scoring: each estimator by its own name, with the budget that was given."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

import dsl
from dsl.checkpoints.loading import Model, load
from dsl.core.path import Tabulated
from dsl.evaluation import scoring as module
from dsl.evaluation.scoring import score, streams_of
from dsl.likelihoods.estimate import Effort, Estimator
from dsl.likelihoods.path_integral import PathIntegral

NAMES = ["roar", "shared", "sequential", "random-order"]


@pytest.fixture(scope="module")
def model() -> Model:
    return load("oracle:markov")


@pytest.fixture(scope="module")
def rows(model: Model) -> list[torch.Tensor]:
    return list(model.denoiser.sample(3, generator=torch.Generator().manual_seed(0)))


class TestStreams:
    """What an estimator draws depends on its name, the seed and the block: on nothing else."""

    @pytest.mark.parametrize(
        "only", [["roar"], ["sequential"], ["random-order", "shared"], NAMES[::-1]]
    )
    def test_the_others_may_come_and_go(
        self, model: Model, rows: Sequence[torch.Tensor], only: list[str]
    ) -> None:
        whole = score(model, rows, budget=8, cutoff=20.0)
        some = score(model, rows, budget=8, cutoff=20.0, only=only)
        assert list(some.kinds) == only
        for name in only:
            for ours, wanted in zip(some.blocks, whole.blocks, strict=True):
                assert torch.equal(ours.values[name], wanted.values[name])

    def test_one_more_contour_changes_nothing(
        self, model: Model, rows: Sequence[torch.Tensor]
    ) -> None:
        corners = torch.stack([torch.zeros(8), torch.full((8,), 20.0)])
        table = Tabulated(torch.tensor([0.0, 1.0]), corners)
        more = score(model, rows, budget=8, cutoff=20.0, table=table)
        less = score(model, rows, budget=8, cutoff=20.0)
        assert list(more.kinds) == [*NAMES, "tabulated"]
        for name in NAMES:
            assert torch.equal(more.reading(name).nats, less.reading(name).nats)

    def test_the_order_of_the_family_does_not_matter(
        self, model: Model, rows: Sequence[torch.Tensor], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        wanted = score(model, rows, budget=8, cutoff=20.0)
        family = type(model.family)
        listed = family.estimators

        def reversed_list(self: object, network: object, effort: Effort) -> list[Estimator]:
            return list(listed(model.family, network, effort))[::-1]

        monkeypatch.setattr(family, "estimators", reversed_list)
        found = score(model, rows, budget=8, cutoff=20.0)
        assert list(found.kinds) == NAMES[::-1]
        for name in NAMES:
            assert torch.equal(found.reading(name).nats, wanted.reading(name).nats)

    def test_a_block_is_scored_the_same_in_any_company(
        self, model: Model, rows: Sequence[torch.Tensor]
    ) -> None:
        whole = score(model, rows, budget=8, cutoff=20.0)
        alone = score(model, rows[2:], indices=[2], budget=8, cutoff=20.0)
        for name in NAMES:
            torch.testing.assert_close(alone.blocks[0].values[name], whole.blocks[2].values[name])

    def test_names_seeds_and_places_all_count(self) -> None:
        cpu = torch.device("cpu")
        first = {
            (name, seed, place): streams_of(PathIntegral(name), seed, [place], cpu)
            for name in ("shared", "sequential")
            for seed in (0, 1)
            for place in (0, 1)
        }
        drawn = [float(torch.rand(1, generator=s.generators[0])) for s in first.values()]
        assert len(set(drawn)) == len(first)


class TestCutoff:
    """Γ is chosen once, with the estimator and the effort of the caller."""

    @pytest.mark.parametrize("budget", [8, 40, 200])
    def test_it_is_chosen_with_the_budget_that_was_given(
        self,
        model: Model,
        rows: Sequence[torch.Tensor],
        budget: int,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        seen: list[PathIntegral] = []
        real = module.choose_cutoff

        def watched(*arguments: object, estimator: PathIntegral, **named: object) -> float:
            seen.append(estimator)
            return real(*arguments, estimator=estimator, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(module, "choose_cutoff", watched)
        report = score(model, rows, budget=budget)
        (one,) = seen
        effort = Effort(budget)
        used = next(
            e for e in model.family.estimators(model.denoiser, effort) if e.label == one.label
        )
        assert isinstance(used, PathIntegral)
        assert (one.replicates, one.draws) == (used.replicates, used.draws)
        # a replicate's points and its read-out are what it may cost
        assert one.replicates * (one.draws + 1) <= budget
        assert report.blocks[0].values["shared"].shape[0] == one.replicates

    def test_a_cutoff_that_is_given_is_taken(
        self, model: Model, rows: Sequence[torch.Tensor], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def forbidden(*_: object, **__: object) -> float:
            raise AssertionError("a cut-off was chosen")

        monkeypatch.setattr(module, "choose_cutoff", forbidden)
        assert score(model, rows, budget=8, cutoff=7.0).cutoff == 7.0

    def test_it_is_chosen_on_other_blocks_if_there_are_any(
        self, model: Model, rows: Sequence[torch.Tensor], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shown: list[torch.Tensor] = []
        monkeypatch.setattr(
            module, "choose_cutoff", lambda _, tokens, **__: shown.append(tokens) or 20.0
        )
        score(model, rows[:1], budget=8, validation=rows[1:])
        score(model, rows[:1], budget=8)
        assert torch.equal(shown[0], torch.stack(list(rows[1:])))
        assert torch.equal(shown[1], torch.stack(list(rows[:1])))


def test_every_text_is_scored_to_its_end() -> None:
    """Blocks of the right length, the last one shorter; each text has a report of its own."""
    report = dsl.likelihood("text8-tiny", ["ab", "c" * 300], budget=4, cutoff=20.0, only=["roar"])
    length = report.model.length
    assert [len(block.tokens) for block in report.blocks] == [2, length, length, 300 - 2 * length]
    first, second = report.by_text()
    assert (first.scored, second.scored) == (2, 300)
    alone = dsl.likelihood("text8-tiny", "ab", budget=4, cutoff=20.0, only=["roar"])
    torch.testing.assert_close(first.reading("roar").nats, alone.reading("roar").nats)


def test_an_estimator_that_the_family_does_not_have_is_refused(
    model: Model, rows: Sequence[torch.Tensor]
) -> None:
    with pytest.raises(ValueError, match=r"no estimator \['vdm-bound'\]; expected some of \['roar"):
        score(model, rows, only=["roar", "vdm-bound"])
