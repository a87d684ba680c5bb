"""All families in one grid of `dsl compare`, each drawn by a sampler of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dsl.cli.main import main
from dsl.families.registry import FAMILIES
from dsl.samplers import registry as presets
from dsl.samplers.registry import SAMPLERS, example


@pytest.mark.slow
def test_one_grid_draws_them_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = ["--cache", str(tmp_path / "cache")]
    cells = []
    for name, family in FAMILIES.items():
        out = tmp_path / name
        assert main(["train", "cyclic", "--smoke", "--set", f"objective={name}",
                     "--out", str(out), *cache]) == 0  # fmt: skip
        serving = presets.serving(family.protocol)
        forms = dict(zip(presets.forms(), SAMPLERS, strict=True))
        cells.append(f"{out}/model/{example(forms[serving[-1]], 6)}")
    capsys.readouterr()
    job = ["compare", *cells, "--steps", "6", "-n", "4", "--seeds-drawn", "1", "--features", "none"]
    job += ["--judge", "none", "--reference", "cyclic-7", "--out", str(tmp_path / "grid"), *cache]
    assert main([*job, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert len(rows) == len(FAMILIES) == len({row["model"] for row in rows})
    assert all(row["nfe"] > 0 for row in rows)
