"""Several averages of the weights: each is what it would be alone, the best is the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from dsl.training import recipe as recipes
from dsl.training.optimizer import Averages, OptimizerConfig
from tests.training.conftest import CYCLIC, events, settings, small, train, weights

THREE = "optimizer.ema=[0.2, 0.6, 0.95]"
STEADY = settings("optimizer.schedule=constant")


def moved(decays: tuple[float, ...]) -> Averages:
    """Averages of a model that has taken five steps."""
    torch.manual_seed(0)
    model = small()
    made = Averages(model, decays)
    luck = torch.Generator().manual_seed(0)
    for _ in range(5):
        for parameter in model.parameters():
            parameter.data.add_(torch.randn(parameter.shape, generator=luck))
        made.update(model)
    return made


class TestAverages:
    def test_each_is_what_it_would_be_alone(self) -> None:
        together = moved((0.0, 0.2, 0.3))
        for decay, ours in zip(together.decays, together.kept, strict=True):
            (alone,) = moved((decay,)).kept
            for name, tensor in alone.state_dict().items():
                assert torch.equal(tensor, ours.state_dict()[name])
        first, *_, last = (each.state_dict() for each in together.kept)
        assert any(not torch.equal(first[name], last[name]) for name in first)

    def test_the_best_by_validation_is_the_model(self) -> None:
        made = moved((0.1, 0.2, 0.3))
        losses = iter([3.0, 1.0, 2.0])
        event = made.validate(lambda _: {"loss": next(losses)})
        assert made.module is made.kept[1].module
        assert event["validation"] == {"loss": 1.0} and event["ema"] == 0.2
        assert event["averages"] == {
            "0.1": {"loss": 3.0}, "0.2": {"loss": 1.0}, "0.3": {"loss": 2.0}
        }  # fmt: skip

    @pytest.mark.parametrize("decays", [(0.9,), (0.1, 0.3)])
    def test_they_are_read_back(self, decays: tuple[float, ...]) -> None:
        made, again = moved(decays), Averages(small(), decays)
        made.best = len(decays) - 1
        again.load(made.tensors(), decays[made.best])
        assert again.best == made.best
        assert all(torch.equal(again.tensors()[n], t) for n, t in made.tensors().items())

    def test_a_single_one_is_named_and_logged_as_ever(self) -> None:
        made = moved((0.9,))
        assert all(name.startswith(("ema.module.", "ema.n_averaged")) for name in made.tensors())
        assert made.validate(lambda _: {"loss": 1.0}) == {"validation": {"loss": 1.0}}


class TestRuns:
    def test_a_run_keeps_all_and_becomes_the_best(self, tmp_path: Path, cache: Path) -> None:
        assert train(tmp_path / "all", cache, *settings(THREE), *STEADY) == 0
        last = [event for event in events(tmp_path / "all") if "validation" in event][-1]
        losses = {decay: found["loss"] for decay, found in last["averages"].items()}
        assert set(losses) == {"0.2", "0.6", "0.95"}
        best = min(losses, key=losses.__getitem__)
        assert last["ema"] == float(best) and last["validation"]["loss"] == losses[best]
        alone = settings(f"optimizer.ema={best}")
        assert train(tmp_path / "alone", cache, *alone, *STEADY) == 0
        ours, theirs = weights(tmp_path / "all"), weights(tmp_path / "alone")
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)

    @pytest.mark.slow
    def test_a_run_cut_in_two_is_the_same_run(self, tmp_path: Path, cache: Path) -> None:
        """Learned SNRs and all averages besides; saved twice between two validations."""
        objective = "objective={draws: stratified, warp: {bins: 4}, snr: {weight: 0.7}}"
        all_of_it = [*settings(THREE, objective, "trainer.save_every=2"), *STEADY]
        assert train(tmp_path / "cut", cache, *settings("trainer.steps=7"), *all_of_it) == 0
        assert train(tmp_path / "cut", cache, *all_of_it) == 0
        assert train(tmp_path / "whole", cache, *all_of_it) == 0
        kept = "checkpoints/step-00000012/training.safetensors"
        ours, theirs = (load_file(tmp_path / name / kept) for name in ("cut", "whole"))
        assert ours.keys() == theirs.keys() and "objective.warp.mass" in theirs
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
        mass = theirs["objective.warp.mass"]
        assert not torch.allclose(mass, torch.full_like(mass, 1 / 4))

    def test_checkpoints_of_before_are_taken_up(self, tmp_path: Path, cache: Path) -> None:
        """They had one average, no state of the objective, and no word about the best."""
        short = [*settings("trainer.steps=6"), *STEADY]
        assert train(tmp_path / "old", cache, *short) == 0
        folder = tmp_path / "old/checkpoints/step-00000006"
        tensors = load_file(folder / "training.safetensors")
        prefixes = {name.split(".")[0] for name in tensors}
        assert prefixes == {"model", "ema", "optimizer"}
        manifest = json.loads((folder / "manifest.json").read_text())
        del manifest["about"]["ema"]
        (folder / "manifest.json").write_text(json.dumps(manifest))
        assert train(tmp_path / "old", cache, *STEADY) == 0
        assert train(tmp_path / "new", cache, *STEADY) == 0
        ours, theirs = weights(tmp_path / "old"), weights(tmp_path / "new")
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


class TestRecipe:
    @pytest.mark.parametrize("value, decays", [("0.5", (0.5,)), ("[0.5, 0.9]", (0.5, 0.9))])
    def test_a_number_or_several(self, value: str, decays: tuple[float, ...]) -> None:
        recipe = recipes.read(CYCLIC, [f"optimizer.ema={value}"])
        assert recipe.optimizer.decays == decays
        written: Any = recipes.strict.parse_yaml(recipes.write(recipe), "it")
        assert written["optimizer"]["ema"] == json.loads(value)
        assert recipes.from_data(written, "it") == recipe

    @pytest.mark.parametrize(
        "value, message",
        [
            ("[]", "ema must be one number or distinct numbers"),
            ("[0.9, 0.9]", "ema must be one number or distinct numbers"),
            ("[0.9, 1.0]", "ema in \\[0, 1\\)"),
            ("[0.9, many]", "expected float, got 'many'"),
            ("{a: 1}", "expected float"),
        ],
    )
    def test_what_is_neither_is_refused(self, value: str, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            recipes.read(CYCLIC, [f"optimizer.ema={value}"])

    def test_the_default_is_one(self) -> None:
        assert OptimizerConfig().decays == (0.9999,)
