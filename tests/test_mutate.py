"""Mutation testing: faults are valid, distinct and reproducible, and the right tests find them."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from tools.mutate import TESTS, read, run, summary
from tools.mutations import Mutant, mutants
from tools.project import Project, defaults_of, equivalents
from tools.trial import choose

ROOT = Path(__file__).parents[1]

EXAMPLE = '''"""An example of 3 lines, or 4."""

import math
import torch

LARGEST: int = 7


def spread(values: list[float], *, least: float = 0.5) -> float:
    """Return 2 or more; é takes two bytes."""
    if not values or len(values) < 2:
        raise ValueError(f"é needs 2 values, got {len(values) + 0}")
    assert len(values) + 1 > 2
    total = 0.0
    for value in values:  # a - b
        total += abs(value) ** 2
    return max(least, math.sqrt(total / (len(values) - 1)))


def table(x: torch.Tensor) -> torch.Tensor:
    wide = (x + 1).double().clamp(min=1e-9)
    return (wide.sum(dim=-1, keepdim=True) / x.std(dim=0)).sqrt().detach() if x is not None else x


spread([1.0], least=2)
'''


FOUND = mutants("example.py", EXAMPLE, defaults_of(EXAMPLE))


def made(before: str, after: str) -> list[Mutant]:
    """The faults of the example that turn one line into another."""
    return [m for m in FOUND if (m.before, m.after) == (before, after)]


def test_faults_are_valid_and_distinct() -> None:
    for source in (EXAMPLE, (ROOT / "src/dsl/core/channel.py").read_text()):
        found = mutants("example.py", source, defaults_of(source))
        programs = {ast.dump(ast.parse(m.apply(source))) for m in found}
        assert len(programs | {ast.dump(ast.parse(source))}) == len(found) + 1
        assert len({m.id for m in found}) == len(found) > 15


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("if not values or len(values) < 2:", "if values or len(values) < 2:"),
        ("if not values or len(values) < 2:", "if not values and len(values) < 2:"),
        ("if not values or len(values) < 2:", "if not values or len(values) <= 2:"),
        ("if not values or len(values) < 2:", "if not values or len(values) < 3:"),
        ("total += abs(value) ** 2", "pass"),
        ("total += abs(value) ** 2", "total += abs(value) * 2"),
        (
            "return max(least, math.sqrt(total / (len(values) - 1)))",
            "return min(least, math.sqrt(total / (len(values) - 1)))",
        ),
        (
            "return max(least, math.sqrt(total / (len(values) - 1)))",
            "return max(least, (total / (len(values) - 1)))",
        ),
        (
            "return max(least, math.sqrt(total / (len(values) - 1)))",
            "return least",
        ),
        ("wide = (x + 1).double().clamp(min=1e-9)", "wide = (x + 1).float().clamp(min=1e-9)"),
        ("wide = (x + 1).double().clamp(min=1e-9)", "wide = (x + 1).double()"),
        ("wide = (x + 1).double().clamp(min=1e-9)", "wide = (x + 1).double().clamp(max=1e-9)"),
        ("spread([1.0], least=2)", "spread([1.0])"),
        ("LARGEST: int = 7", "LARGEST: int = 8"),
    ],
)
def test_a_fault_of_every_kind_is_found(before: str, after: str) -> None:
    assert len(made(before, after)) == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("wide.sum", "wide.mean"),
        ("dim=-1", "dim=0"),
        (", keepdim=True", ""),
        ("std(dim=0)", "std(dim=0, correction=0)"),
        (".detach()", ""),
        (".sqrt()", ""),
        ("is not None", "is None"),
    ],
)
def test_reductions_have_their_own_faults(old: str, new: str) -> None:
    line = EXAMPLE[EXAMPLE.index("return (wide") :].split("\n")[0]
    assert len(made(line, line.replace(old, new))) == 1


def test_texts_annotations_and_assertions_have_no_faults() -> None:
    changed = {m.before for m in FOUND if m.after != "pass"}
    assert not any(word in line for line in changed for word in ('"""', "assert", "raise"))
    assert not any("a - b" in m.before and m.edit.kind == "operator" for m in FOUND)


def test_guards_and_defaults_have_less_weight() -> None:
    assert {m.weight for m in FOUND if "LARGEST" in m.before} == {0.25}
    assert {m.weight for m in FOUND if m.before.startswith("total +=")} == {1.0}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A package with one tested line, one untested line, and a test."""
    for name in ("src/tiny/deep", "tests"):
        (tmp_path / name).mkdir(parents=True)
    code = "def double(x):\n    return x + x\n\n\ndef idle(x):\n    return x * x\n"
    (tmp_path / "src/tiny/deep/one.py").write_text(code)
    test = "from tiny.deep.one import double\n\n\ndef test_it():\n    assert double(3) == 6\n"
    (tmp_path / "tests/test_one.py").write_text(test)
    return Project(tmp_path, "tiny", {"deep": ["tests"]})


@pytest.mark.slow
def test_tested_lines_are_killed_and_untested_survive(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*.py")}
    sample = project.sample(10, seed=0)
    out = tmp_path / "out.jsonl"
    results = run(project, sample, out)
    fate = {m.function: results[m.id].killed for m in sample}
    assert fate == {"double": True, "idle": False}
    assert results == read(out)
    assert results == run(project, sample, out), "finished mutants are not tested again"
    assert len(out.read_text().splitlines()) == 2
    assert {p: p.read_bytes() for p in tmp_path.rglob("*.py")} == before

    said = summary(project, sample, results, {})
    assert "+    return x / x" in said and "+    return x - x" not in said
    assert "2 tried    1 killed    1 survived  50%" in said
    alive = next(m for m in sample if m.function == "idle")
    said = summary(project, sample, results, {alive.key: "x is 1"})
    assert "1 tried    1 killed    0 survived  100%" in said


@pytest.mark.slow
def test_a_project_whose_tests_fail_is_refused(project: Project, tmp_path: Path) -> None:
    (tmp_path / "tests/test_one.py").write_text("def test_it():\n    assert False\n")
    with pytest.raises(RuntimeError, match="must pass on the original source"):
        run(project, project.sample(1, seed=0), tmp_path / "out.jsonl")


def test_samples_of_a_seed_are_nested_and_cover_every_file(project: Project) -> None:
    for name in ("two", "three"):
        (project.root / f"src/tiny/deep/{name}.py").write_text(EXAMPLE)
    few = project.sample(20, seed=3)
    assert few == project.sample(20, seed=3)
    assert {m.id for m in few} < {m.id for m in project.sample(40, seed=3)}
    assert {m.id for m in few} != {m.id for m in project.sample(20, seed=4)}
    counts = Counter(m.file for m in project.sample(80, seed=3))
    assert counts == {f"tiny/deep/{n}.py": c for n, c in [("one", 2), ("two", 39), ("three", 39)]}


def test_every_package_of_the_table_has_sources_and_tests() -> None:
    project = Project(ROOT, "dsl", TESTS)
    assert {Path(file).parts[1] for file in project.sources} == set(TESTS)
    for paths in TESTS.values():
        assert all((ROOT / path).exists() for path in paths)
    listed = equivalents(ROOT / "tools" / "equivalent.txt")
    files = {key[0] for key in listed}
    keys = {m.key for file in files for m in mutants(file, project.sources[file])}
    assert set(listed) <= keys, "an equivalent fault that no longer exists"


def test_cheap_and_related_tests_are_chosen_first(project: Project) -> None:
    (project.root / "tests/test_two.py").write_text("import tiny.deep.one\n")
    project = replace(project, tests={"deep": ["tests/test_one.py", "tests/test_three.py"]})
    (project.root / "tests/test_three.py").write_text("")
    fault = mutants("tiny/deep/one.py", "class EdmPath:\n    def steps(self): 1 + 2\n")[0]
    assert project.near(fault) > {"edm", "path", "tests/test_two.py"}
    times = {
        "tests/test_three.py::a": 1.0,
        "tests/test_three.py::a[edm]": 2.0,
        "tests/test_two.py::b": 2.5,
        "tests/test_one.py::c": 9.0,
        "tests/test_four.py::d": 0.1,
    }
    wanted = ["tests/test_three.py::a[edm]", "tests/test_two.py::b", "tests/test_one.py::c"]
    assert list(choose(project, fault, times, 14)) == wanted
    assert list(choose(project, fault, times, 13)) == wanted[:2]


def test_an_equivalent_fault_needs_a_reason(tmp_path: Path) -> None:
    table = tmp_path / "equivalent.txt"
    table.write_text("# why\n\na.py f\n- x + 0\n+ x - 0\nzero has\nno sign\n")
    assert equivalents(table) == {("a.py", "f", "x + 0", "x - 0"): "zero has no sign"}
    table.write_text("a.py f\n- x + 0\n+ x - 0\n")
    with pytest.raises(ValueError, match="and a reason"):
        equivalents(table)
