"""The plan of the house: who may import whom, and what the front door loads."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import dsl

ROOT = Path(__file__).parent.parent
APPS = ROOT / "src" / "dsl" / "apps"


def imports(code: str) -> list[tuple[str, str]]:
    """List the names that a program imports from dsl, with the module they come from."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("dsl"):
            found += [(node.module, alias.name) for alias in node.names]
    return found


@pytest.mark.parametrize("path", sorted(APPS.rglob("*.py")), ids=lambda p: str(p.relative_to(APPS)))
def test_apps_use_the_names_that_packages_export(path: Path) -> None:
    own = f"dsl.apps.{path.relative_to(APPS).parts[0].removesuffix('.py')}"
    for module, name in imports(path.read_text(encoding="utf-8")):
        if module.startswith((own, "dsl._util")) or module in ("dsl", "dsl.version"):
            continue
        assert not module.startswith("dsl.apps."), f"{path.name} reaches into {module}"
        package = import_module(module)
        assert module.count(".") == 1, f"{path.name} imports {name} from inside {module}"
        assert name in dir(package), f"{module} does not export {name}"


def test_docs_and_examples_import_from_packages() -> None:
    """A reader copies these lines: none reaches into the files of a package."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    code = [path.read_text() for path in (ROOT / "examples").rglob("*.py")]
    code += [
        b for page in pages for b in re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    ]
    found = [pair for text in code for pair in imports(text)]
    assert len(found) > 30
    for module, name in found:
        assert re.fullmatch(r"dsl|dsl\.\w+|dsl\.apps\.\w+", module), f"{module} is too deep"
        assert name in dir(import_module(module)), f"{module} does not export {name}"


def test_the_help_of_the_package_lists_all_that_it_exports() -> None:
    listed = set(re.findall(r"\w+", dsl.__doc__ or ""))
    assert set(dir(dsl)) - {"__version__"} - listed == set()
    packages = {path.parent.name for path in (ROOT / "src/dsl").glob("*/__init__.py")}
    assert packages - {"_util", "cli"} - listed == set()


def test_sampling_loads_few_modules_and_no_app() -> None:
    script = (
        "import sys, json, io, contextlib\n"
        "from dsl.cli.main import main\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        "    main(['sample', '--model', 'oracle:cyclic-7', '--sampler', 'mdlm@4'])\n"
        "print(json.dumps([m for m in sys.modules if m.split('.')[0] == 'dsl']))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert not [module for module in loaded if module.startswith("dsl.apps")]
    assert len(loaded) <= 80, sorted(loaded)
