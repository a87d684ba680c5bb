"""Choosing a precision: the choice is kept, costs the run nothing, and never kills it."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import torch

from dsl.families.mixed_snr import MixedSNRObjective, MixedSNROptions
from dsl.families.objective import Objective
from dsl.families.registry import FAMILIES
from dsl.families.warp import WarpOptions
from dsl.training import precision
from dsl.training.precision import RECORD, faster, fault, settle
from dsl.training.rehearsal import Rehearsal
from tests.families.conftest import NAMED
from tests.training.conftest import events, settings, small, train, weights

AUTO = settings("trainer.precision=auto", "optimizer.schedule=constant")
DIES = "import os, signal\nos.kill(os.getpid(), signal.SIGILL)\n"
SEES = "import sys\nassert len(sys.argv) == 2\n"


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in place of the trial; it answers that bfloat16 is possible."""
    path = tmp_path / "trial.py"
    path.write_text(SEES)
    monkeypatch.setattr(precision, "TRIAL", path)
    return path


@pytest.fixture(scope="module")
def possible() -> bool:
    """Ask the real trial whether this machine has bfloat16; whatever it says is an answer."""
    found = fault(rehearsal())
    assert found is None or found.startswith("a trial of it")
    return found is None


def measured(monkeypatch: pytest.MonkeyPatch, float32: float, bf16: float) -> None:
    """Let a measurement find these seconds."""
    monkeypatch.setattr(precision, "measure", lambda _: {"float32": float32, "bf16": bf16})


def rehearsal(objective: Objective | None = None) -> Rehearsal:
    return Rehearsal.of(
        objective or MixedSNRObjective(small(), MixedSNROptions()),
        lambda step, places, batch: torch.zeros(len(places), 5, dtype=torch.long),
        batch=4, most=4, seed=1, device=torch.device("cpu"),
    )  # fmt: skip


class TestTrial:
    """bfloat16 is tried in a child process: what happens to it does not happen to us."""

    @pytest.mark.parametrize(
        "script, message",
        [
            (DIES, "a trial of it crashed on this machine (SIGILL)"),
            ("raise SystemExit(1)", "a trial of it gave wrong results"),
            ("import time\ntime.sleep(600)", "did not finish (TimeoutExpired)"),
        ],
        ids=["dies", "fails", "hangs"],
    )
    def test_a_child_that_fails_means_float32(
        self,
        script: str,
        message: str,
        trial: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        trial.write_text(script)
        if "sleep" in script:
            monkeypatch.setattr(precision, "PATIENCE", 0.5)
        measured(monkeypatch, 2.0, 1.0)
        chosen = settle("auto", tmp_path, rehearsal())
        assert chosen.precision == "float32" and message in (chosen.said or "")
        assert message in json.loads((tmp_path / RECORD).read_text())["why"]


class TestChoice:
    def test_bf16_must_save_time(self) -> None:
        assert faster({"float32": 1.0, "bf16": 0.5}) == "bf16"
        for bf16 in (0.99, 1.0, 2.0):
            assert faster({"float32": 1.0, "bf16": bf16}) == "float32"

    def test_both_are_measured(self, possible: bool) -> None:
        if not possible:
            pytest.skip("this machine cannot compute in bfloat16")
        found = precision.measure(rehearsal())
        assert set(found) == {"float32", "bf16"} and all(0 < s < 1e6 for s in found.values())

    def test_what_was_measured_once_is_kept(
        self, tmp_path: Path, trial: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        measured(monkeypatch, 2.0, 1.0)
        first = settle("auto", tmp_path, rehearsal())
        assert first.precision == "bf16" and "2.00 times as fast" in (first.said or "")
        measured(monkeypatch, 1.0, 2.0)
        again = settle("auto", tmp_path, rehearsal())
        assert again.precision == "bf16" and again.said is None

    def test_on_a_machine_without_it_the_run_goes_on_aloud(
        self, tmp_path: Path, trial: Path
    ) -> None:
        (tmp_path / RECORD).write_text('{"precision": "bf16"}')
        trial.write_text(DIES)
        chosen = settle("auto", tmp_path, rehearsal())
        assert chosen.precision == "float32"
        assert "precision changes from bf16 to float32" in (chosen.said or "")
        assert "SIGILL" in (chosen.said or "")
        assert settle("auto", tmp_path, rehearsal()).said is None  # said once

    def test_the_recipe_has_the_last_word(self, tmp_path: Path, trial: Path) -> None:
        (tmp_path / RECORD).write_text('{"precision": "bf16"}')
        chosen = settle("float32", tmp_path, rehearsal())
        assert chosen.precision == "float32" and "the recipe was changed" in (chosen.said or "")
        assert settle("auto", tmp_path, rehearsal()).precision == "float32"

    @pytest.mark.parametrize("wanted", ["float32", "fp16"])
    def test_what_the_recipe_says_needs_no_trial_and_no_record(
        self, wanted: str, tmp_path: Path, trial: Path
    ) -> None:
        trial.write_text(DIES)
        chosen = settle(wanted, tmp_path, rehearsal())  # type: ignore[arg-type]
        assert (chosen.precision, chosen.said) == (wanted, None)
        assert not (tmp_path / RECORD).exists()

    @pytest.mark.parametrize("text", ["", "[]", '{"precision": "fp8"}'])
    def test_a_damaged_record_is_one_line(self, text: str, tmp_path: Path) -> None:
        (tmp_path / RECORD).write_text(text)
        with pytest.raises(ValueError, match=RECORD):
            settle("auto", tmp_path, rehearsal())


class TestRehearsal:
    @pytest.mark.parametrize("name", NAMED)
    def test_it_leaves_no_trace(self, name: str, possible: bool) -> None:
        family = FAMILIES[name]
        sizes = {"hidden_dim": 16, "n_blocks": 1, "n_heads": 2, "dropout": 0.3}
        options = MixedSNROptions(warp=WarpOptions(bins=4)) if name == "dsl" else family.Options()
        objective = family.objective(family.build(family.shape(7, 5, sizes)), options)
        state = copy.deepcopy(objective.state_dict())
        luck = torch.get_rng_state()
        trying = rehearsal(objective)
        trying.step()
        trying.step(bf16=possible)
        trying.flops_per_token()
        assert torch.equal(torch.get_rng_state(), luck)
        assert all(torch.equal(objective.state_dict()[name], state[name]) for name in state)
        assert all(parameter.grad is None for parameter in objective.parameters())

    def test_a_run_that_measured_is_the_run_that_did_not(
        self, tmp_path: Path, cache: Path, trial: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        measured(monkeypatch, 1.0, 2.0)
        short = settings("trainer.steps=3", "model.dropout=0.3")
        assert train(tmp_path / "auto", cache, *AUTO, *short) == 0
        assert train(tmp_path / "plain", cache, *AUTO[2:], *short) == 0
        ours, theirs = weights(tmp_path / "auto"), weights(tmp_path / "plain")
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
        assert not (tmp_path / "plain" / RECORD).exists()


class TestRuns:
    def test_a_run_is_taken_up_as_it_began(
        self, tmp_path: Path, cache: Path, trial: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Even where a measurement would now say otherwise: bit for bit the whole run."""
        measured(monkeypatch, 1.0, 2.0)
        assert train(tmp_path / "whole", cache, *AUTO, *settings("trainer.steps=4")) == 0
        assert train(tmp_path / "cut", cache, *AUTO, *settings("trainer.steps=2")) == 0
        measured(monkeypatch, 2.0, 1.0)
        assert train(tmp_path / "cut", cache, *AUTO, *settings("trainer.steps=4")) == 0
        ours, theirs = weights(tmp_path / "cut"), weights(tmp_path / "whole")
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
        used = [
            event["utilisation"] for event in events(tmp_path / "cut") if "utilisation" in event
        ]
        assert [each["precision"] for each in used] == ["float32", "float32"]

    def test_a_precision_that_cannot_be_had_is_one_line(
        self, tmp_path: Path, cache: Path, trial: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        trial.write_text(DIES)
        assert train(tmp_path / "run", cache, *settings("trainer.precision=bf16")) == 1
        said = capsys.readouterr().err.splitlines()[-1]
        assert said.startswith("dsl train: trainer.precision is bf16, but a trial of it crashed")
        assert "expected float32 or auto" in said

    def test_a_run_that_chose_may_be_told_otherwise_and_others_may_not(
        self,
        tmp_path: Path,
        cache: Path,
        trial: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        run = tmp_path / "run"
        measured(monkeypatch, 1.0, 2.0)
        assert train(run, cache, *AUTO, *settings("trainer.steps=3")) == 0
        (run / RECORD).write_text('{"precision": "bf16"}')  # as if it had been
        plain = AUTO[2:]
        assert train(run, cache, *plain, *settings("trainer.steps=4")) == 0
        said = " ".join(capsys.readouterr().err.split())
        assert "precision changes from bf16 to float32" in said
        assert train(run, cache, *AUTO, *settings("trainer.steps=4")) == 0
        other = settings("trainer.precision=bf16")
        assert train(tmp_path / "plain", cache, *plain, *settings("trainer.steps=1")) == 0
        assert train(tmp_path / "plain", cache, *plain, *other) == 1
        assert "holds a run of another recipe (trainer.precision" in capsys.readouterr().err
