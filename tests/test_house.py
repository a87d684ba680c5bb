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


def loaded(command: list[str], folder: Path) -> set[str]:
    """Run a command in a process of its own, and list the modules of ours that it imports."""
    script = (
        "import sys, json\n"
        "from dsl.cli.main import main\n"
        "code = main(sys.argv[1:])\n"
        "print('\\n' + json.dumps([m for m in sys.modules if m.split('.')[0] == 'dsl']))\n"
        "sys.exit(code)\n"
    )
    job = [sys.executable, "-c", script, *command]
    done = subprocess.run(job, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_sampling_loads_few_modules_and_no_app(tmp_path: Path) -> None:
    found = loaded(["sample", "--model", "text8-tiny", "--sampler", "mdlm@2"], tmp_path)
    assert not [module for module in found if module.startswith("dsl.apps")]
    assert len(found) <= 80, sorted(found)


WALKS = {
    "sample": ["--model", "text8-tiny", "--sampler", "mdlm@2", "--prompt", "the"],
    "train": ["text8-tiny", "--smoke", "--set", "data.corpus=text.txt", "--out", "run"],
    "likelihood": ["text8-tiny", "the cat sat", "--budget", "4"],
    "correct": ["text.txt"],
}


@pytest.mark.slow
@pytest.mark.parametrize("verb", WALKS)
def test_commands_use_the_modules_that_the_guide_for_developers_lists(
    verb: str, tmp_path: Path
) -> None:
    (tmp_path / "text.txt").write_text("the quick brown fox jumps over the lazy dog " * 100)
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    walk = text.split(f"- `dsl {verb}`:")[1].split("\n- ")[0].split("\n\n")[0]
    listed = re.findall(r"`([a-z_.]+\.[a-z_]+)`", walk)
    assert len(listed) == len(set(listed)) >= 6, "each module once"
    assert {f"dsl.{name}" for name in listed} <= loaded([verb, *WALKS[verb]], tmp_path)
