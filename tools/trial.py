"""Run the tests on a copy of the source with one fault at a time."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.mutations import Mutant
from tools.project import Project

Tests = dict[str, float]
"""The tests to run, in order, with the seconds of each."""

PATIENCE = 10
"""Tests time out after this multiple of their measured time."""


@dataclass(frozen=True)
class Result:
    """The result of a mutant."""

    id: str
    killed: bool
    by: str
    """The test that failed, or the exit code."""
    seconds: float
    file: str
    function: str
    kind: str
    before: str
    after: str

    def __str__(self) -> str:
        fate = f"killed by {self.by}" if self.killed else "SURVIVED"
        return f"{self.id} {self.file} {self.function} {self.kind}: {fate}, {self.seconds:.0f} s"


@dataclass(frozen=True)
class Workplace:
    """A copy of the source in which pytest is run."""

    project: Project
    folder: Path

    @classmethod
    def set_up(cls, project: Project, folder: Path) -> Workplace:
        """Copy the source."""
        skip = shutil.ignore_patterns("__pycache__")
        shutil.copytree(project.root / "src", folder / "src", ignore=skip)
        return cls(project, folder)

    def attempt(self, mutant: Mutant, tests: Tests) -> Result:
        """Run the tests in order on the copy with a fault, and restore the copy."""
        file = self.folder / "src" / mutant.file
        source = self.project.sources[mutant.file]
        order = self.folder / "order.json"
        order.write_text(json.dumps(list(tests)))
        files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
        one = 60 + PATIENCE * max(tests.values())
        limit = 60 + PATIENCE * sum(tests.values())
        started = time.monotonic()
        try:
            _write(file, mutant.apply(source))
            command = ["-x", "--timeout", f"{one:.0f}", *files]
            code, output = self.pytest(command, limit, DSL_MUTATE_ORDER=str(order))
        finally:
            _write(file, source)
        if code == 5:
            raise RuntimeError(f"expected tests of {mutant.file} in {files}, got none")
        failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", output, re.MULTILINE)
        by = "" if code == 0 else failed[1] if failed else f"exit code {code}"
        seconds = round(time.monotonic() - started, 1)
        about = (mutant.file, mutant.function, mutant.edit.kind, mutant.before, mutant.after)
        return Result(mutant.id, code != 0, by, seconds, *about)

    def pytest(self, arguments: Sequence[str], limit: float, **variables: str) -> tuple[int, str]:
        """Run pytest on the copy, and kill it after the limit."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += ["-p", "tools.quickest", "-m", "not slow"]
        command += ["--tb=no", "-rfE", *arguments]
        paths = [self.folder / "src", Path(__file__).parents[1]]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "PYTHONHASHSEED": "0",
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self.folder / "hypothesis"),
            **variables,
        }
        process = subprocess.Popen(
            command,
            cwd=self.project.root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return -signal.SIGKILL, ""
        return process.returncode, output


def _write(file: Path, source: str) -> None:
    """Write a source file and delete its compiled versions."""
    for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
        compiled.unlink()
    file.write_text(source)


def measure(place: Workplace, cache: Path) -> dict[str, float]:
    """Return the time of every test on the original source, cached by content.

    The tests must pass, because a failing test would kill every mutant.
    """
    project = place.project
    source = hashlib.sha256()
    code = (project.root / "src").rglob("*.py")
    for file in sorted((*code, *(project.root / "tests").rglob("conftest.py"))):
        source.update(file.read_bytes())
    files = {file for part in project.tests for file in project.test_files(part)}
    states = {
        file: hashlib.sha256(source.digest() + project.test_sources[file].encode()).hexdigest()
        for file in sorted(files)
    }
    known = json.loads(cache.read_text()) if cache.exists() else {}
    if new := [f for f, state in states.items() if f not in known or known[f]["state"] != state]:
        taken = place.folder / "times.json"
        ended, output = place.pytest(new, 3600, DSL_MUTATE_TIMES=str(taken))
        if ended not in (0, 5):  # 5: all tests of these files are slow
            raise RuntimeError(f"the tests must pass on the original source, got:\n{output}")
        known |= {file: {"state": states[file], "times": {}} for file in new}
        for test, seconds in json.loads(taken.read_text()).items():
            known[test.partition("::")[0]]["times"][test] = seconds
        cache.write_text(json.dumps(known))
    return {test: seconds for f in states for test, seconds in known[f]["times"].items()}


def choose(project: Project, mutant: Mutant, times: Mapping[str, float], budget: float) -> Tests:
    """Choose the tests of a fault by price, cheapest first, within the budget.

    The price is the time, times 3 for tests of other parts, divided by 5 if the test's name shares
    a word with the fault, and by 5 again if its file imports the mutated module.
    """
    part = project.owner(mutant)
    files, own, near = project.test_files(part), project.tests[part][0], project.near(mutant)
    price: Tests = {}
    for test, seconds in times.items():
        file, _, name = test.partition("::")
        if file in files:
            close = (file in near) + any(word in name.lower() for word in near)
            price[test] = seconds * (1 if file.startswith(own) else 3) / 5**close
    chosen: Tests = {}
    for test in sorted(price, key=price.__getitem__):
        if (budget := budget - times[test]) < 0:
            break
        chosen[test] = times[test]
    return chosen
