from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dsl.apps.reproduce.curves import read
from dsl.apps.reproduce.tradeoff import tradeoff
from dsl.cli.main import main


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "recipe.yaml").write_text("trainer: {batch: 4}\ndata: {length: 8}\n")
    events = [
        {"step": 5, "loss": 1.0},
        {"step": 5, "validation": {"loss": 3.0, "roar": 3.0, "roar_stderr": 0.1}},
        {"step": 10, "validation": {"loss": 2.5, "roar": 2.5, "roar_stderr": 0.1}},
        {"step": 10, "validation": {"loss": 2.5, "roar": 2.5, "roar_stderr": 0.1}},
    ]
    (folder / "log.jsonl").write_text("\n".join(map(json.dumps, events)) + "\n")
    return folder


def test_curves_are_in_training_tokens(run: Path, tmp_path: Path) -> None:
    assert read(run) == {"roar": [(160, 3.0, 0.1), (320, 2.5, 0.1)]}
    out = tmp_path / "figures" / "curves.svg"
    assert main(["reproduce", "figure", "curves", str(run), "--out", str(out)]) == 0
    assert out.read_text().startswith("<?xml")


def test_the_suffix_sets_the_format(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("curves", "curves.txt"):
        out = tmp_path / name
        assert main(["reproduce", "figure", "curves", str(run), "--out", str(out)]) == 1
        error = capsys.readouterr().err
        assert "--out must end in one of ." in error and error.count("\n") == 1
        assert not out.exists()


def test_what_is_no_run_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "x.svg")
    assert main(["reproduce", "figure", "curves", str(tmp_path), "--out", out]) == 1
    assert "is not a run" in capsys.readouterr().err
    (tmp_path / "r.json").write_text("{}")
    assert main(["reproduce", "figure", "tradeoff", str(tmp_path / "r.json"), "--out", out]) == 1
    assert "is not the results.json" in capsys.readouterr().err


def test_lines_can_be_told_apart_and_look_the_same_in_every_panel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many models, one of which has no score in the first panel."""
    from matplotlib import axes

    looks: list[tuple[float, str, str]] = []
    plain = axes.Axes.errorbar

    def noted(self: Any, x: Any, y: Any, **style: Any) -> Any:
        looks.append((y[0] % 100, style["color"], style["marker"]))
        return plain(self, x, y, **style)

    monkeypatch.setattr(axes.Axes, "errorbar", noted)
    rows = [
        {
            "model": f"m{n}",
            "sampler": "roar",
            "nfe": 8.0,
            "genppl": 100.0 + n,
            "judged_bits": 1.0 * n,
        }
        for n in range(23)
    ]
    del rows[3]["genppl"]
    tradeoff(rows, {"genppl": 30.0}, tmp_path / "many.svg")
    assert len(looks) == 22 + 23
    assert len(set(looks)) == 23 == len({(colour, marker) for _, colour, marker in looks})
