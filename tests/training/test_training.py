from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from dsl import recipes
from dsl.cli.main import main
from dsl.models.config import ModelConfig
from dsl.models.model import DSLModel
from dsl.snr import LogNormal, Mixed, Roar
from dsl.streams import Streams
from dsl.training.checkpoint import Checkpoints
from dsl.training.objective import MixedSNRObjective, ObjectiveConfig, crowding
from dsl.training.optimizer import OptimizerConfig, average, optimizer, orthogonal
from tests.conftest import perturbed

CYCLIC = recipes.COOKBOOK / "cyclic.yaml"


@pytest.fixture
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.getbasetemp() / "cache"


def train(out: Path, cache: Path, *extra: str) -> int:
    arguments = ["train", str(CYCLIC), "--smoke", "--out", str(out), "--cache", str(cache)]
    return main([*arguments, *extra])


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "model" / "model.safetensors")


def small() -> DSLModel:
    return perturbed(
        ModelConfig(
            7, codebook_dim=6, hidden_dim=16, cond_dim=4, n_blocks=1, n_heads=2, dropout=0.0
        )
    )


class TestObjective:
    tokens = torch.randint(7, (6, 5), generator=torch.Generator().manual_seed(0))

    def loss(self, config: ObjectiveConfig, model: DSLModel | None = None) -> torch.Tensor:
        streams = Streams.derive(0, range(6))
        return MixedSNRObjective(model or small(), config)(self.tokens, streams, range(6), 6)

    def test_an_untrained_model_is_uniform(self) -> None:
        model = DSLModel(
            ModelConfig(7, codebook_dim=6, hidden_dim=16, cond_dim=4, n_blocks=1, n_heads=2)
        )
        loss = self.loss(ObjectiveConfig(), model)
        assert float(loss.total.detach()) == pytest.approx(math.log(7))

    def test_parts_are_shares_of_the_whole(self) -> None:
        parts = self.loss(ObjectiveConfig(Mixed(weight=0.5))).parts
        bands = [part for name, part in parts.items() if name.startswith("snr")]
        for split in (bands, [parts["roar"], parts["continuous"]]):
            assert sum(float(value) for value, _ in split) == pytest.approx(float(parts["all"][0]))
            assert sum(int(count) for _, count in split) == 30
        assert 0 < int(parts["roar"][1]) < 30

    def test_branches_are_told_apart(self) -> None:
        only = self.loss(ObjectiveConfig(Mixed(endpoint=Roar.atomic(), weight=0.0))).parts
        assert int(only["roar"][1]) == 30
        none = self.loss(ObjectiveConfig(Mixed(LogNormal(1.65, 0.1), weight=1.0))).parts
        assert int(none["roar"][1]) == 0

    def test_the_noise_belongs_to_the_item(self) -> None:
        """An item's loss does not depend on the batch it is in."""
        objective = MixedSNRObjective(small(), ObjectiveConfig())
        whole = objective(self.tokens, Streams.derive(3, range(6)), range(6), 6)
        alone = [
            objective(self.tokens[i : i + 1], Streams.derive(3, [i]), range(i, i + 1), 6).total
            for i in range(6)
        ]
        torch.testing.assert_close(whole.total, torch.stack(alone).mean())

    @pytest.mark.parametrize("loss", ["cross-entropy", "embedding-mse"])
    def test_chunks_change_neither_loss_nor_gradients(
        self, loss: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model, results = small(), []
        for elements in (2**24, 7 * 4):  # all rows at once; four at a time
            monkeypatch.setattr("dsl.training.objective.CHUNK_ELEMENTS", elements)
            monkeypatch.setattr("dsl.training.objective.KEPT_ELEMENTS", elements)
            model.zero_grad()
            total = self.loss(ObjectiveConfig(loss=loss), model).total  # type: ignore[arg-type]
            total.backward()
            results.append([total.detach(), *(p.grad.clone() for p in model.parameters())])
        for whole, chunked in zip(*results, strict=True):
            torch.testing.assert_close(whole, chunked)

    def test_masked_only_ignores_visible_tokens(self) -> None:
        config = ObjectiveConfig(Mixed(endpoint=Roar.atomic(), weight=0.0), masked_only=True)
        loss = self.loss(config)
        value, count = loss.parts["snr 0-0.5"]
        assert float(loss.total.detach()) == pytest.approx(float(value / count), rel=1e-5)

    def test_embedding_mse_is_the_squared_distance_to_the_posterior_mean(self) -> None:
        value = float(self.loss(ObjectiveConfig(loss="embedding-mse")).total.detach())
        assert 0 < value < 4  # two points of the unit ball are at most 2 apart

    def test_the_penalty_is_least_on_a_simplex(self) -> None:
        from dsl import sphere

        assert float(crowding(sphere.simplex(7))) == pytest.approx(1 / 36)
        assert float(crowding(torch.ones(7, 1))) == pytest.approx(1.0)
        plain, charged = (
            float(self.loss(ObjectiveConfig(codebook_penalty=weight)).total.detach())
            for weight in (0.0, 1.0)
        )
        assert charged > plain


class TestOptimizer:
    def test_rates(self) -> None:
        config = OptimizerConfig(lr=1.0, warmup=10, schedule="cosine", final=0.1)
        rates = [config.rate(step, 110) for step in range(111)]
        assert rates[:10] == [pytest.approx((i + 1) / 10) for i in range(10)]
        assert rates[10] == 1.0 and rates[60] == pytest.approx(0.55)
        assert rates[110] == pytest.approx(0.1)
        assert OptimizerConfig(lr=1.0).rate(10**6, 10) == 1.0
        assert OptimizerConfig(lr=1.0, schedule="linear").rate(5, 10) == 0.5

    def test_the_average_forgets_its_beginning(self) -> None:
        update, mean = average(0.9999), torch.zeros(1)
        for n in range(200):
            mean = update(mean, torch.ones(1), n)
        assert float(mean) > 0.99

    def test_impossible_settings_are_refused(self) -> None:
        with pytest.raises(ValueError, match="lr > 0"):
            OptimizerConfig(lr=0.0)


class TestMuon:
    matrix = torch.randn(12, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def test_all_singular_values_come_near_one(self) -> None:
        values = torch.linalg.svdvals(orthogonal(self.matrix))
        assert float(values.min()) > 0.65 and float(values.max()) < 1.25

    def test_size_does_not_count_and_turns_commute(self) -> None:
        made = orthogonal(self.matrix)
        torch.testing.assert_close(orthogonal(1000 * self.matrix), made, atol=1e-4, rtol=0)
        torch.testing.assert_close(orthogonal(self.matrix.T), made.T, atol=1e-4, rtol=0)
        left, _ = torch.linalg.qr(self.matrix[:, :12])
        torch.testing.assert_close(orthogonal(left @ self.matrix), left @ made, atol=1e-4, rtol=0)

    def test_half_the_digits_turn_almost_as_well(self) -> None:
        coarse = orthogonal(self.matrix, torch.bfloat16)
        assert coarse.dtype is self.matrix.dtype
        torch.testing.assert_close(coarse, orthogonal(self.matrix), atol=0.05, rtol=0)

    def test_it_takes_the_projections_of_the_blocks(self) -> None:
        model = small()
        groups = optimizer(model, OptimizerConfig(kind="muon")).param_groups
        block = model.backbone.blocks[0]
        linear = [block.attn_qkv, block.attn_out, block.mlp[0], block.mlp[2]]
        wanted = {id(layer.weight) for layer in linear}
        assert {id(p) for p in groups[1]["params"]} == wanted
        everything = {id(p) for p in model.parameters() if p.requires_grad}
        assert {id(p) for p in groups[0]["params"]} == everything - wanted

    def test_a_step_is_as_long_as_adams_and_the_rest_is_adams(self) -> None:
        steps = {}
        for kind in ("adamw", "muon"):
            model = small()
            before = {name: p.detach().clone() for name, p in model.named_parameters()}
            adam = optimizer(model, OptimizerConfig(kind=kind, lr=1e-3))  # type: ignore[arg-type]
            luck = torch.Generator().manual_seed(1)
            for parameter in model.parameters():
                parameter.grad = torch.randn(parameter.shape, generator=luck)
            adam.step()
            steps[kind] = {n: p.detach() - before[n] for n, p in model.named_parameters()}
        for name, muons in steps["muon"].items():
            adams = steps["adamw"][name]
            if "attn" in name or ("mlp" in name and adams.ndim == 2 and "blocks" in name):
                assert 0.1e-3 < float(muons.square().mean().sqrt()) < 0.3e-3
            else:
                torch.testing.assert_close(muons, adams, atol=1e-6, rtol=0)


class TestRuns:
    def test_a_run_leaves_a_model_that_can_be_used(
        self, tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert train(tmp_path / "run", cache) == 0
        assert "trained to step 12" in capsys.readouterr().out
        assert (
            main(["sample", "--model", str(tmp_path / "run" / "model"), "--sampler", "roar"]) == 0
        )
        assert set(capsys.readouterr().out.strip()) <= set("ABCDEFG")
        log = (tmp_path / "run" / "log.jsonl").read_text()
        events = [json.loads(line) for line in log.splitlines()]
        assert [e["step"] for e in events if "validation" in e] == [6, 12]
        assert [e["step"] for e in events if "loss" in e] == [3, 6, 9, 12]
        assert all("continuous" in e for e in events if "loss" in e)

    @pytest.mark.parametrize("kind", ["adamw", "muon"])
    def test_a_run_cut_in_two_is_the_same_run(self, kind: str, tmp_path: Path, cache: Path) -> None:
        """Steps 1 to 6, then on to 12: bit for bit the weights of 12 in one go."""
        steady = ["--set", "optimizer.schedule=constant", "--set", f"optimizer.kind={kind}"]
        assert train(tmp_path / "cut", cache, "--set", "trainer.steps=6", *steady) == 0
        assert train(tmp_path / "cut", cache, *steady) == 0
        assert train(tmp_path / "whole", cache, *steady) == 0
        ours, theirs = weights(tmp_path / "cut"), weights(tmp_path / "whole")
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)

    def test_a_truncated_checkpoint_is_passed_over_aloud(
        self, tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert train(tmp_path / "run", cache) == 0
        reference = weights(tmp_path / "run")
        newest = tmp_path / "run/checkpoints/step-00000012/training.safetensors"
        newest.write_bytes(newest.read_bytes()[:1000])
        capsys.readouterr()
        assert train(tmp_path / "run", cache) == 0
        said = " ".join(capsys.readouterr().err.split())
        assert "step-00000012 is damaged (training.safetensors has changed)" in said
        assert "resumed from step 6" in said
        assert all(torch.equal(weights(tmp_path / "run")[n], reference[n]) for n in reference)

    def test_another_recipe_in_the_same_place_is_refused(
        self, tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert train(tmp_path / "run", cache) == 0
        assert train(tmp_path / "run", cache, "--set", "optimizer.lr=1e-3") == 1
        error = capsys.readouterr().err
        assert "holds a run of another recipe (optimizer.lr: " in error and "0.001 here)" in error

    def test_text_that_changed_is_refused(
        self, tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """As many letters, but other ones: the old weights would mean other tokens."""
        text, out = tmp_path / "mine.txt", tmp_path / "run"
        changes = ["--set", f"data.corpus={text}", "--set", "data.length=8"]
        text.write_text("abcdefgh" * 100)
        assert train(out, cache, *changes) == 0
        text.write_text("bcdefghi" * 100)
        assert train(out, cache, *changes, "--set", "trainer.steps=20") == 1
        assert "the text and the tokenizer of" in capsys.readouterr().err
        text.write_text("abcdefgh" * 100)
        assert train(out, cache, *changes, "--set", "trainer.steps=14") == 0

    def test_a_mistyped_corpus_leaves_nothing_in_the_way(
        self, tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out = tmp_path / "run"
        assert train(out, cache, "--set", "data.corpus=cyclik-7") == 1
        assert "unknown corpus" in capsys.readouterr().err
        assert train(out, cache) == 0
        assert train(out, cache) == 0
        assert "already trained to step 12" in capsys.readouterr().err

    def test_a_directory_of_something_else_is_refused(
        self, tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "thesis.tex").write_text("")
        assert train(tmp_path, cache) == 1
        assert "holds no run, but 'thesis.tex'" in capsys.readouterr().err

    def test_fine_tuning_asks_for_weights(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["train", "text8-tiny-finetune", "--out", str(tmp_path)]) == 1
        assert "say with --init which weights" in capsys.readouterr().err

    def test_weights_that_read_another_alphabet_are_refused(
        self, tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert train(tmp_path / "run", cache, "--init", "text8-tiny") == 1
        error = capsys.readouterr().err
        assert "--init text8-tiny knows 27 tokens, this corpus has 7" in error
        assert "--set data.tokenizer=" in error

    def test_a_second_process_is_refused(
        self, tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        import fcntl

        (tmp_path / "run").mkdir()
        with (tmp_path / "run" / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            assert train(tmp_path / "run", cache) == 1
        assert "another process is at work in" in capsys.readouterr().err

    def test_a_loss_that_is_not_finite_stops_the_run(
        self, tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert train(tmp_path / "run", cache, "--set", "optimizer.lr=1e37", "--set",
                     "optimizer.warmup=0") == 1  # fmt: skip
        error = capsys.readouterr().err
        assert "is nan; stopped" in error or "must be finite" in error

    def test_beginning_with_given_weights(
        self, tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert train(tmp_path / "run", cache) == 0
        assert train(tmp_path / "more", cache, "--init", str(tmp_path / "run" / "model")) == 0
        assert "began with the weights of" in capsys.readouterr().err


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


@pytest.mark.parametrize(
    "change, message",
    [
        (["trainer.setps=3"], "setps"),
        (["trainer.steps=many"], "steps"),
        (["trainer.steps=0"], "at least 1"),
        (["model.hiden_dim=3"], "unknown model config key 'hiden_dim'"),
        (["data.corpus=texd8"], "unknown corpus 'texd8'"),
        (["steps"], "key=value"),
        (["data.windows=round"], "windows"),
    ],
)
def test_mistakes_in_recipes_are_explained(
    change: list[str],
    message: str,
    tmp_path: Path,
    cache: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    changes = [word for item in change for word in ("--set", item)]
    assert train(tmp_path / "run", cache, *changes) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["dsl", "mdlm", "ar", "vp"])
@pytest.mark.parametrize("path", sorted(recipes.COOKBOOK.glob("*.yaml")), ids=lambda p: p.stem)
def test_every_recipe_can_be_smoked_in_every_form(
    path: Path, kind: str, tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = [f"objective={kind}"] if kind != "dsl" else []
    arguments = ["train", str(path), "--smoke", "--out", str(tmp_path), "--cache", str(cache)]
    arguments += [word for change in changes for word in ("--set", change)]
    assert main(arguments) == 0, capsys.readouterr().err
    resolved = recipes.read(tmp_path / "recipe.yaml")
    assert recipes.read(path, changes, smoke=True) == resolved


def test_recipes_that_come_along_have_names(
    tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "no-such", "--out", str(tmp_path / "run"), "--cache", str(cache)]) == 1
    assert "expected a YAML file or one of cyclic, owt-finetune, text8" in capsys.readouterr().err
    job = ["train", "cyclic", "--smoke", "--out", str(tmp_path / "run"), "--cache", str(cache)]
    assert main(job) == 0
    assert recipes.read(tmp_path / "run/recipe.yaml") == recipes.read(CYCLIC, smoke=True)


def test_a_bundled_mdlm_is_converted_and_fine_tuned(
    tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The two commands of the docs, shortened; the endpoint logits are MDLM's."""
    assert main(["convert", "mdlm", "text8-tiny-mdlm", str(tmp_path / "from"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parity_at_mask_bias_50"] < 1e-4
    job = ["train", "text8-tiny-finetune", "--init", str(tmp_path / "from"), "--cache", str(cache)]
    short = ["trainer.steps=2", "trainer.batch=2", "data.corpus=python-docs", "data.validation=2"]
    changes = [word for change in short for word in ("--set", change)]
    assert main([*job, "--out", str(tmp_path / "run"), *changes]) == 0
    assert "began with the weights of" in capsys.readouterr().err


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
        OSError, match=r"step 2 could not be written.*the ones before it are intact"
    ):
        store.save(2, {"w": torch.ones(1)}, {}, full)
    found = store.newest(lambda _: None)
    assert found is not None and found.step == 1
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001"]


def command(out: Path, cache: Path, *extra: str) -> list[str]:
    return [
        sys.executable, "-m", "dsl", "train", str(CYCLIC), "--smoke", "--out", str(out),
        "--cache", str(cache), "--set", "trainer.steps=60", "--set", "trainer.save_every=5", *extra,
    ]  # fmt: skip


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_is_the_same_run(tmp_path: Path, cache: Path) -> None:
    """Kill -9 at random moments, then resume: bit for bit the weights of an undisturbed run."""
    subprocess.run(command(tmp_path / "whole", cache), check=True, capture_output=True)
    luck = torch.Generator().manual_seed(0)
    for _ in range(6):
        process = subprocess.Popen(command(tmp_path / "killed", cache), stderr=subprocess.DEVNULL)
        time.sleep(3.0 + 3.0 * float(torch.rand(1, generator=luck)))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    subprocess.run(command(tmp_path / "killed", cache), check=True, capture_output=True)
    ours, theirs = weights(tmp_path / "killed"), weights(tmp_path / "whole")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def logged(out: Path) -> list[float]:
    events = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [event["loss"] for event in events if "loss" in event]


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["dsl", "mdlm"])
def test_a_compiled_run_learns_what_a_plain_one_learns(
    objective: str, tmp_path: Path, cache: Path
) -> None:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    extra = ("--set", "trainer.steps=12", "--set", f"objective={objective}")
    for name, compiled in (("plain", "false"), ("fused", "true")):
        job = command(tmp_path / name, cache, *extra, "--set", f"trainer.compile={compiled}")
        subprocess.run(job, check=True, capture_output=True)
    assert logged(tmp_path / "fused") == pytest.approx(logged(tmp_path / "plain"), rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["dsl", "ar"])
def test_a_run_in_bfloat16_learns_what_a_plain_one_learns(
    objective: str, tmp_path: Path, cache: Path
) -> None:
    fixed = ("--set", f"objective={objective}", "--set", "optimizer.kind=muon")
    fixed = (*fixed, "--set", "trainer.steps=12")
    for precision in ("float32", "bf16"):
        extra = (*fixed, "--set", f"trainer.precision={precision}")
        subprocess.run(
            command(tmp_path / precision, cache, *extra), check=True, capture_output=True
        )
    coarse, exact = logged(tmp_path / "bf16"), logged(tmp_path / "float32")
    assert coarse == pytest.approx(exact, rel=0.03) and coarse != exact


def test_compiling_asks_for_a_compiler(
    tmp_path: Path,
    cache: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert train(tmp_path / "run", cache, "--set", "trainer.compile=true") == 1
    assert "needs a C++ compiler, and g++ was not found" in capsys.readouterr().err


@pytest.mark.slow
def test_a_signal_saves_and_says_how_to_go_on(tmp_path: Path, cache: Path) -> None:
    extra = ("--set", "trainer.steps=100000")
    process = subprocess.Popen(
        command(tmp_path, cache, *extra), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    log = tmp_path / "log.jsonl"
    while not log.exists() or log.read_text().count("\n") < 4:
        time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "go on with: dsl train" in out and "SIGTERM: saving after this step" in err
    assert Checkpoints(tmp_path / "checkpoints").newest(lambda _: None) is not None


@pytest.mark.slow
def test_two_ranks_are_one_process_with_the_same_batch(tmp_path: Path, cache: Path) -> None:
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    alone = command(tmp_path / "alone", cache)
    shared = command(tmp_path / "shared", cache)
    subprocess.run(alone, check=True, capture_output=True)
    subprocess.run([shared[0], *launch, *shared[1:]], check=True, capture_output=True)
    ours, theirs = weights(tmp_path / "shared"), weights(tmp_path / "alone")
    for name in theirs:
        torch.testing.assert_close(ours[name], theirs[name], atol=1e-4, rtol=1e-3, msg=name)


SHARDED = """
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule, fully_shard
from dsl.models.config import ModelConfig
from dsl.models.model import DSLModel
from dsl.streams import Streams
from dsl.training.objective import MixedSNRObjective, ObjectiveConfig

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
config = ModelConfig(7, codebook_dim=6, hidden_dim=16, cond_dim=4, n_blocks=2, n_heads=2)
tokens = torch.randint(7, (4, 5))

def objective():
    torch.manual_seed(1)
    model = DSLModel(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return MixedSNRObjective(model, ObjectiveConfig())

plain = objective()
plain(tokens, Streams.derive(0, range(4)), range(4), 4).total.backward()
wanted = {name: p.grad for name, p in plain.named_parameters()}

sharded = objective()
for block in sharded.model.backbone.blocks:
    fully_shard(block)
fully_shard(sharded)
assert isinstance(sharded, FSDPModule)
mine = range(2 * rank, 2 * rank + 2)
sharded(tokens[mine.start : mine.stop], Streams.derive(0, mine), mine, 4).total.backward()
for name, parameter in sharded.named_parameters():
    torch.testing.assert_close(parameter.grad.full_tensor(), wanted[name], atol=1e-6, rtol=1e-4)
dist.destroy_process_group()
print("the gradients agree")
"""


@pytest.mark.slow
def test_sharded_gradients_are_whole_gradients(tmp_path: Path) -> None:
    """FSDP2 on two gloo ranks: every gradient, gathered, is that of one process."""
    script = tmp_path / "sharded.py"
    script.write_text(SHARDED)
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [sys.executable, *launch, str(script)], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("the gradients agree") == 2
