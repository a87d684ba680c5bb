"""Runs: what they leave, how they go on, and what they refuse."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

import dsl
from dsl._util.files import locked
from dsl.cli.main import main
from dsl.training import recipe as recipes
from dsl.training.checkpoint import Checkpoints
from dsl.training.run import Watch
from tests.training.conftest import CYCLIC, events, settings, train, weights


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; tests that change it use a copy."""
    out = tmp_path_factory.mktemp("finished") / "run"
    assert train(out, tmp_path_factory.getbasetemp() / "cache", "--device", "cpu") == 0
    return out


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "run")


class TestRuns:
    def test_a_run_leaves_a_model_that_can_be_used(
        self, finished: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["sample", "--model", str(finished / "model"), "--sampler", "roar"]) == 0
        assert set(capsys.readouterr().out.strip()) <= set("ABCDEFG")
        logged = events(finished)
        assert [e["step"] for e in logged if "validation" in e] == [6, 12]
        assert [e["step"] for e in logged if "loss" in e] == [3, 6, 9, 12]
        assert all("continuous" in e for e in logged if "loss" in e)

    @pytest.mark.parametrize("kind", ["adamw", "muon"])
    def test_a_run_cut_in_two_is_the_same_run(self, kind: str, tmp_path: Path, cache: Path) -> None:
        """Steps 1 to 3, then on to 6: bit for bit the weights of 6 in one go."""
        steady = settings("optimizer.schedule=constant", f"optimizer.kind={kind}")
        for out, steps in (("cut", 3), ("cut", 6), ("whole", 6)):
            assert train(tmp_path / out, cache, *steady, *settings(f"trainer.steps={steps}")) == 0
        ours, theirs = weights(tmp_path / "cut"), weights(tmp_path / "whole")
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)

    def test_settings_that_leave_the_weights_alone_may_change(
        self, finished: Path, copied: Path, cache: Path
    ) -> None:
        shutil.rmtree(copied / "checkpoints/step-00000012")
        often = ("validate_every", "save_every", "log_every")
        changes = settings(*(f"trainer.{name}=4" for name in often), "trainer.keep=3")
        assert train(copied, cache, *changes) == 0
        ours, theirs = weights(copied), weights(finished)
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
        resumed = events(copied)[len(events(finished)) :]
        assert [e["step"] for e in resumed if "validation" in e] == [8, 12]
        steps = sorted(path.name[-2:] for path in (copied / "checkpoints").iterdir())
        assert steps == ["06", "08", "12"]
        assert recipes.read(copied / "recipe.yaml").trainer.save_every == 4

    def test_a_truncated_checkpoint_is_skipped_with_a_warning(
        self, finished: Path, copied: Path, cache: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        reference = weights(finished)
        newest = copied / "checkpoints/step-00000012/training.safetensors"
        newest.write_bytes(newest.read_bytes()[:1000])
        assert train(copied, cache) == 0
        said = " ".join(capsys.readouterr().err.split())
        assert "step-00000012 is damaged (training.safetensors has changed)" in said
        assert "resumed from step 6" in said
        assert all(torch.equal(weights(copied)[n], reference[n]) for n in reference)

    def test_another_recipe_in_the_same_place_is_refused(
        self, copied: Path, cache: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert train(copied, cache, "--set", "optimizer.lr=1e-3") == 1
        error = capsys.readouterr().err
        assert "holds a run of another recipe (optimizer.lr: " in error and "0.001 here)" in error

    def test_text_that_changed_is_refused(
        self, tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """As many letters, but other ones: the old weights would mean other tokens."""
        text, out = tmp_path / "mine.txt", tmp_path / "run"
        changes = settings(f"data.corpus={text}", "data.length=8", "trainer.steps=2")
        text.write_text("abcdefgh" * 100)
        assert train(out, cache, *changes) == 0
        text.write_text("bcdefghi" * 100)
        assert train(out, cache, *changes, "--set", "trainer.steps=4") == 1
        assert "the text and the tokenizer of" in capsys.readouterr().err
        text.write_text("abcdefgh" * 100)
        assert train(out, cache, *changes, "--set", "trainer.steps=3") == 0

    def test_a_mistyped_corpus_leaves_nothing_in_the_way(
        self, tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out = tmp_path / "run"
        assert train(out, cache, "--set", "data.corpus=cyclik-7") == 1
        assert "unknown corpus" in capsys.readouterr().err
        short = settings("trainer.steps=1")
        assert train(out, cache, *short) == 0
        assert train(out, cache, *short) == 0
        assert "already trained to step 1" in capsys.readouterr().err

    def test_a_directory_of_something_else_is_refused(
        self, tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "thesis.tex").write_text("")
        assert train(tmp_path, cache) == 1
        assert "is not a run: it holds 'thesis.tex'" in capsys.readouterr().err

    def test_fine_tuning_asks_for_weights(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["train", "text8-tiny-finetune", "--out", str(tmp_path)]) == 1
        assert "--init must name its initial weights" in capsys.readouterr().err

    def test_weights_of_another_shape_or_other_pieces_are_refused(
        self, tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert train(tmp_path / "run", cache, "--init", "stories-tiny") == 1
        error = capsys.readouterr().err
        assert "--init stories-tiny does not fit the recipe's model: it has 2048 tokens" in error
        assert "this corpus has 7, and they differ" in error and "--set data.tokenizer=" in error
        wide = settings("model.n_blocks=6")
        for name, changes, problem in (
            ("text8-tiny", [], "blocks must be at least the model's 6, got 2"),
            ("text8-tiny", wide, "has shape"),
            ("text8-tiny-ar", wide, "text8-tiny-ar is not a DSL model"),
        ):
            assert train(tmp_path / "run", cache, "--init", name, *changes) == 1
            error = capsys.readouterr().err
            assert f"--init {name} does not fit the recipe's model: " in error and problem in error

    def test_weights_of_another_alphabet_are_converted(
        self, finished: Path, tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """As by `dsl convert alphabet`; a run cut in two is the same run, bit for bit."""
        text = tmp_path / "mine.txt"
        text.write_text("Gabe fed a bad cab. " * 60)
        start, model = tmp_path / "start", str(finished / "model")
        assert main(["convert", "alphabet", model, str(start), "--corpus", str(text)]) == 0
        own = settings(f"data.corpus={text}", "optimizer.schedule=constant")
        for out, init, steps in (
            ("cut", model, 2), ("cut", model, 4), ("whole", model, 4), ("start", start, 4),
        ):  # fmt: skip
            steady = [*own, *settings(f"trainer.steps={steps}"), "--init", str(init)]
            assert train(tmp_path / f"run-{out}", cache, *steady) == 0
            said = " ".join(capsys.readouterr().err.split())
            assert ("converted from its 7 characters to the 9 of" in said) == (init == model)
        wanted = weights(tmp_path / "run-start")
        for out in ("cut", "whole"):
            found = weights(tmp_path / f"run-{out}")
            assert all(torch.equal(found[name], wanted[name]) for name in wanted)
        assert dsl.load(tmp_path / "run-cut" / "model").trained_on == (12 + 4) * 16 * 7

    def test_a_second_process_is_refused(
        self, tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "run").mkdir()
        with locked(tmp_path / "run"):
            assert train(tmp_path / "run", cache) == 1
        assert "another process is at work in" in capsys.readouterr().err

    def test_a_loss_that_is_not_finite_stops_the_run(
        self, tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert train(tmp_path / "run", cache, "--set", "optimizer.lr=1e37", "--set",
                     "optimizer.warmup=0") == 1  # fmt: skip
        error = capsys.readouterr().err
        assert "is nan; stopped" in error or "must be finite" in error

    def test_initial_weights_are_loaded_and_counted(
        self, finished: Path, tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        init = ["--init", str(finished / "model"), *settings("trainer.steps=1")]
        assert train(tmp_path / "more", cache, *init) == 0
        assert "initialised with the weights of" in capsys.readouterr().err
        assert dsl.load(tmp_path / "more" / "model").trained_on == (12 + 1) * 16 * 7


def test_text_of_ones_own(tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its characters become the vocabulary, and the codebook as wide as exactness asks."""
    text = tmp_path / "mine.txt"
    text.write_text("Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.\n" * 40)
    out = tmp_path / "run"
    assert train(out, cache, "--set", f"data.corpus={text}", "--set", "data.length=16") == 0
    capsys.readouterr()
    config = json.loads((out / "model" / "config.json").read_text())
    assert config["vocab_size"] == len(set(text.read_text()))
    assert config["codebook_dim"] == config["vocab_size"] - 1
    assert main(["infill", "Zwölf [4]", "--model", str(out / "model")]) == 0
    assert capsys.readouterr().out.startswith("Zwölf ")


def test_tensorboard_shows_what_the_log_says(tmp_path: Path, cache: Path) -> None:
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="the extra 'tensorboard' is not installed",
    ).EventAccumulator
    assert train(tmp_path, cache, "--tensorboard") == 0
    events = accumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    logged = {e["step"]: e["loss"] for e in lines if "loss" in e}
    shown = {e.step: e.value for e in events.Scalars("training/loss")}
    assert shown == pytest.approx(logged)
    validated = [e["validation"]["roar"] for e in lines if "validation" in e]
    assert [e.value for e in events.Scalars("validation/roar")] == pytest.approx(validated)


def test_compiling_asks_for_a_compiler(
    tmp_path: Path,
    cache: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert train(tmp_path / "run", cache, "--set", "trainer.compile=true") == 1
    assert "needs a C++ compiler, and g++ was not found" in capsys.readouterr().err


def test_checkpoints_keep_the_newest_and_the_best(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, keep=2)
    for step, loss in enumerate([3.0, 1.0, 2.0, 2.5, 2.2], 1):
        about = {"validation": {"loss": loss}}
        store.save(step, {"w": torch.ones(1)}, about, lambda path: None)
    assert sorted(p.name[-1] for p in tmp_path.iterdir()) == ["2", "4", "5"]


def test_a_full_disk_leaves_the_older_checkpoints(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    store.save(1, {"w": torch.ones(1)}, {}, lambda path: None)

    def full(_: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(
        OSError, match=r"step 2 could not be written.*No space left.*before is intact"
    ):
        store.save(2, {"w": torch.ones(1)}, {}, full)
    found = store.newest(lambda _: None)
    assert found is not None and found.step == 1
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001"]


class TestDevice:
    @pytest.mark.parametrize("device", ["toaster", "cuda:99", "cpu:0:0", "", "meta", "xla"])
    def test_a_device_that_is_not_there_is_one_line(
        self, device: str, tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert train(tmp_path / "run", cache, "--device", device) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("dsl train: ") and repr(device) in line
        assert not (tmp_path / "run").exists()


class TestLibrary:
    """`dsl.train` is what the command calls."""

    def test_a_call_is_the_command(self, finished: Path, tmp_path: Path, cache: Path) -> None:
        told: list[str] = []
        seen: list[dict[str, object]] = []
        watch = Watch(told.append, seen.append)
        done = dsl.train("cyclic", tmp_path / "call", smoke=True, cache=cache, watch=watch)
        assert (done.step, done.finished, done.model) == (12, True, tmp_path / "call" / "model")
        ours, theirs = weights(tmp_path / "call"), weights(finished)
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
        logged = [event["step"] for event in events(finished)]
        assert [event["step"] for event in seen] == logged and told
        assert dsl.load(done.model).trained_on == 12 * 16 * 7

    def test_changes_are_for_recipes_by_name(self, tmp_path: Path, cache: Path) -> None:
        recipe = recipes.read(CYCLIC, ["trainer.steps=1"], smoke=True)
        with pytest.raises(ValueError, match="changes and smoke are for recipes"):
            dsl.train(recipe, tmp_path, changes=["trainer.steps=3"])
        assert dsl.train(recipe, tmp_path / "run", cache=cache).step == 1
