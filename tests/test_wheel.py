"""The wheel holds the package with its models and recipes, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
import zlib
from pathlib import Path

import pytest

import dsl

ROOT = Path(__file__).parent.parent
MODELS = (
    "english-tiny", "stories-tiny", "stories-tiny-mdlm",
    "text8-tiny", "text8-tiny-20m", "text8-tiny-ar", "text8-tiny-mdlm", "text8-tiny-vp",
)  # fmt: skip
RECIPES = (
    "cyclic", "english-tiny", "moses-tiny", "owt-finetune", "stories-mdlm", "stories-tiny", "text8",
    "text8-tiny",
    "text8-tiny-adamw", "text8-tiny-finetune",
)  # fmt: skip
METADATA = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    builder = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is not installed")
    folder = str(tmp_path_factory.mktemp("dist"))
    with pytest.MonkeyPatch.context() as patch:  # compressing the models would take seconds
        patch.setattr(zlib, "Z_DEFAULT_COMPRESSION", zlib.Z_NO_COMPRESSION)
        return Path(next(builder.WheelBuilder(str(ROOT)).build(directory=folder)))


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    about = f"discrete_stochastic_localization-{dsl.__version__}.dist-info"
    modules = {str(p.relative_to(ROOT / "src")) for p in (ROOT / "src/dsl").rglob("*.py")}
    expected = {f"{about}/{name}" for name in METADATA} | {"dsl/py.typed"}
    expected.add("dsl/apps/stories/stories15M.json")
    expected |= {f"dsl/recipes/{name}.yaml" for name in RECIPES}
    for name in MODELS:
        files = ("config.json", "model.safetensors", "tokenizer.json", "training.json")
        expected |= {f"dsl/weights/{name}/{file}" for file in files}
    shown = ("english-tiny", "stories-tiny", "text8-tiny")
    expected |= {f"dsl/weights/{name}/README.md" for name in shown}
    assert held == modules | expected


def test_every_file_of_the_wheel_is_committed(wheel: Path) -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is not a git checkout")
    tracked = subprocess.run(
        ["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    held = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("dsl/")}
    assert held == {name.removeprefix("src/") for name in tracked}


def test_a_bundled_model_is_at_most_15_megabytes() -> None:
    for name in MODELS:
        weights = ROOT / "src/dsl/weights" / name / "model.safetensors"
        assert weights.stat().st_size < 15e6, name
