"""The plan of the house: who may import whom, and what the front door loads."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
APPS = ROOT / "src" / "dsl" / "apps"


def imports(path: Path) -> list[tuple[str, str]]:
    """List the names that a file imports from dsl, with the module they come from."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("dsl"):
            found += [(node.module, alias.name) for alias in node.names]
    return found


@pytest.mark.parametrize("path", sorted(APPS.rglob("*.py")), ids=lambda p: str(p.relative_to(APPS)))
def test_apps_use_the_names_that_packages_export(path: Path) -> None:
    own = f"dsl.apps.{path.relative_to(APPS).parts[0].removesuffix('.py')}"
    for module, name in imports(path):
        if module.startswith((own, "dsl._util")) or module in ("dsl", "dsl.version"):
            continue
        assert not module.startswith("dsl.apps."), f"{path.name} reaches into {module}"
        package = import_module(module)
        assert module.count(".") == 1, f"{path.name} imports {name} from inside {module}"
        assert name in dir(package), f"{module} does not export {name}"


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
