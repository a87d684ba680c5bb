"""What a comparison refuses before any work, and what it says of rows that are not alike."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from dsl.checkpoints.loading import Model, load
from dsl.cli.main import main
from dsl.evaluation import comparison as comparison
from dsl.evaluation.comparison import Cell, Difference, Grid, differences
from dsl.evaluation.settings import JudgeSettings
from dsl.evaluation.suite import text_hash
from dsl.samplers.registry import sampler
from dsl.samplers.specification import to_data


def result(name: str, nfe: float) -> dict[str, Any]:
    return {"about": {"sampler": to_data(sampler(name))}, "nfe": {"mean": nfe}}


def compared(*paths: tuple[str, float], model: str = "text8-tiny") -> list[Difference]:
    cells = {Cell(model, name, name, 0): result(name, nfe) for name, nfe in paths}
    return differences(cells, {model: load(model)})


def test_rows_that_are_alike_differ_in_nothing() -> None:
    assert compared(("mdlm@64", 60.0), ("remdm-conf@64", 62.0)) == []


def test_a_default_that_differs_is_warned_of() -> None:
    """The hybrid draws at temperature 0.8 unless told otherwise; nobody chose that here."""
    (found,) = compared(("mdlm@64", 64.0), ("fb@64", 64.0), ("hybrid@16+32", 64.0))
    assert found.setting == "temperature"
    assert found.by_default == ("text8-tiny/hybrid@16+32",)
    assert "by default, not by choice" in found.text
    assert found.to_dict()["values"]["text8-tiny/hybrid@16+32"] == "0.8"


def test_a_difference_that_was_chosen_is_only_named() -> None:
    chosen = "hybrid@16+32:temperature=0.7"
    (found,) = compared(("mdlm@64", 64.0), ("fb@64", 64.0), (chosen, 64.0))
    assert found.setting == "temperature" and not found.by_default
    assert not compared(("mdlm@64:temperature=0.8", 64.0), ("hybrid@16+32", 64.0))


def test_top_p_and_training_are_held_together() -> None:
    cells = {
        Cell("text8-tiny", "a", "mdlm@64:top_p=0.9", 0): result("mdlm@64:top_p=0.9", 64.0),
        Cell("text8-tiny-20m", "b", "mdlm@32", 0): result("mdlm@32", 31.0),
    }
    models: dict[str, Model] = {name: load(name) for name in ("text8-tiny", "text8-tiny-20m")}
    settings = {found.setting for found in differences(cells, models)}
    assert settings == {"top-p", "training tokens"}


def test_calls_are_listed_unless_they_differ_by_the_steps_asked_for() -> None:
    assert not compared(("mdlm@64", 64.0), ("mdlm@32", 31.0), ("fb@32", 32.0))
    for one, other in (
        (("mdlm@64", 64.0), ("roar", 128.0)),
        (("mdlm@64", 64.0), ("edm@64", 127.0)),
        (("mdlm@48:temperature=0.8", 48.0), ("hybrid@16+32", 65.0)),
    ):
        (found,) = compared(one, other, (other[0].replace("@", "@1"), other[1]))
        assert found.setting == "denoiser calls"
        assert list(found.values.values())[:2] == [one[1], other[1]]


@pytest.mark.parametrize(
    "change, message",
    [
        (["nosuch/mdlm@T"], "no model 'nosuch'"),
        (["text8-tiny/mdlm@0"], "at least 1 step"),
        (["text8-tiny-mdlm/edm@T"], "does not fit this sampler, which asks a Continuous"),
        (["text8-tiny-ar/mdlm@T"], "Samplers that fit: causal"),
        (["text8-tiny-vp/roar"], "Samplers that fit: vp@T"),
        (["text8-tiny/mdlm@T", "--reference", "texd8"], "unknown corpus 'texd8'"),
        (["text8-tiny/mdlm@T", "--judge", "nowhere"], "no model directory at 'nowhere'"),
        (["text8-tiny/mdlm@T", "--device", "cuda:7"], "device 'cuda:7' cannot be used"),
    ],
)
def test_what_is_wrong_is_refused_before_any_work(
    change: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "grid"
    job = ["compare", "--reference", "python-docs", "--features", "none", "--judge", "none"]
    assert main([*job, *change, "--out", str(out), "--cache", str(tmp_path / "cache")]) == 1
    captured = capsys.readouterr()
    assert message in captured.err and captured.err.count("\n") == 1
    assert not out.exists() and not (tmp_path / "cache").exists()


def test_the_command_says_which_settings_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = ["compare", "text8-tiny/mdlm@4", "text8-tiny/hybrid@2+1", "--reference", "python-docs"]
    job += ["--features", "none", "--judge", "none", "--seeds-drawn", "1", "-n", "4"]
    job += ["--length", "16", "--out", str(tmp_path / "grid"), "--cache", str(tmp_path / "cache")]
    assert main(job) == 0
    captured = capsys.readouterr()
    assert "| hybrid@2+1 |" in captured.out
    assert "warning: temperature differs between rows (by default, not by choice" in captured.err
    record = json.loads((tmp_path / "grid" / "results.json").read_text())
    assert record["differences"][0]["setting"] == "temperature"


@pytest.mark.parametrize("name", ["seeds", "n", "workers", "batch_size"])
def test_nothing_is_compared_of_nothing(name: str) -> None:
    with pytest.raises(ValueError, match="must be >= 1"):
        Grid(["oracle:two-bit/roar"], **{name: 0})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must be >= 1"):
        Grid(["oracle:two-bit/mdlm@T"], steps=[4, 0])


class Clerk:
    """A judge that counts what it is shown."""

    def __init__(self) -> None:
        self.shown = 0

    def protocol(self) -> dict[str, str]:
        return {"judge": "clerk"}

    def samples(self, samples: list[Any], made: dict[str, Any]) -> dict[str, Any]:
        self.shown += 1
        texts = [sample.text for sample in samples]
        return {"samples_hash": text_hash(texts), "protocol": self.protocol()}


def test_what_is_measured_already_is_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models that read alike share a judge; only lost and damaged results are made again."""
    clerks: list[Clerk] = []

    def hired(*_: Any) -> Clerk:
        clerks.append(Clerk())
        return clerks[-1]

    monkeypatch.setattr(comparison, "build", hired)
    cells = ["text8-tiny/mdlm@2", "text8-tiny-20m/mdlm@2"]
    grid = Grid(cells, seeds=2, n=1, length=8)
    comparison.draw(grid, tmp_path, lambda *_: None)
    settings = JudgeSettings(reference="python-docs")
    first = comparison.measure(grid, settings, tmp_path, lambda _: None)
    assert [clerk.shown for clerk in clerks] == [4]
    lost, damaged, other, _ = grid
    lost.file(tmp_path, ".json").unlink()
    damaged.file(tmp_path, ".json").write_text("null")
    other.file(tmp_path, ".json").write_text("[]")
    again = comparison.measure(grid, settings, tmp_path, lambda _: None)
    assert [clerk.shown for clerk in clerks] == [4, 3]
    assert again == first and set(again) == set(grid)


@pytest.mark.slow
def test_more_workers_than_cores_draw_every_cell_and_say_so(tmp_path: Path) -> None:
    grid = Grid(["oracle:two-bit/roar"], seeds=3, n=2, workers=(os.cpu_count() or 1) + 1)
    said: list[tuple[int, int]] = []
    comparison.draw(grid, tmp_path, lambda *counts: said.append(counts))
    assert said == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert all(cell.file(tmp_path, ".jsonl").is_file() for cell in grid)
