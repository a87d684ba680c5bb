"""The package as a whole: its front door, its documentation, its extras."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

import dsl
from dsl._util.extras import require

PACKAGES = [
    "dsl", "dsl.core", "dsl.conditioning", "dsl.models", "dsl.likelihoods", "dsl.samplers",
    "dsl.data", "dsl.families", "dsl.checkpoints", "dsl.generation", "dsl.evaluation",
    "dsl.training", "dsl.apps.correct",
]  # fmt: skip
MODULES = [m.name for m in walk_packages(dsl.__path__, "dsl.") if m.name != "dsl.__main__"]


def test_importing_the_package_costs_nothing() -> None:
    code = "import sys, dsl; print('torch' in sys.modules, 'numpy' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.stdout == "False False\n"


def test_the_front_door_opens() -> None:
    for package in PACKAGES:
        loaded = import_module(package)
        assert len(dir(loaded)) > 2
        assert all(getattr(loaded, name) is not None for name in dir(loaded)), package
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = dsl.nothing


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_has_a_docstring(module: str) -> None:
    loaded = import_module(module)
    assert loaded.__doc__
    for name, value in vars(loaded).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module:
            continue
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__doc__, f"{module}.{name}"


def test_a_missing_extra_is_named() -> None:
    with pytest.raises(ImportError, match=r"pip install .*\[eval\]"):
        require("no_such_module_at_all", extra="eval")
    assert require("json", extra="eval").dumps({}) == "{}"


@pytest.mark.parametrize("package", PACKAGES)
def test_no_public_name_is_shadowed_by_a_module(package: str) -> None:
    """Importing every module leaves the exported functions and classes in place."""
    for module in MODULES:
        import_module(module)
    text = Path(import_module(package).__file__ or "").read_text(encoding="utf-8")
    for home, name in re.findall(r"^    from (\S+) import (\w+) as \w+$", text, re.MULTILINE):
        if home != package:
            assert getattr(import_module(package), name) is getattr(import_module(home), name)
