"""One fault at a time, in a copy of the source, before the tests that should notice it."""

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
"""The tests to run, in order, and the seconds that each takes."""

PATIENCE = 10
"""How much longer than on a free processor anything may take before it counts as endless."""


@dataclass(frozen=True)
class Result:
    """What became of a mutant."""

    id: str
    killed: bool
    by: str
    """The test that failed, or how else the run ended."""
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
    """A copy of the source, and a process for pytest."""

    project: Project
    folder: Path

    @classmethod
    def set_up(cls, project: Project, folder: Path) -> Workplace:
        """Copy the source."""
        skip = shutil.ignore_patterns("__pycache__")
        shutil.copytree(project.root / "src", folder / "src", ignore=skip)
        return cls(project, folder)

    def attempt(self, mutant: Mutant, tests: Tests) -> Result:
        """Put a fault into the copy, run the tests in their order, and take it out again."""
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
            raise RuntimeError(f"none of the tests of {mutant.file} was found in {files}")
        failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", output, re.MULTILINE)
        by = "" if code == 0 else failed[1] if failed else f"exit code {code}"
        seconds = round(time.monotonic() - started, 1)
        about = (mutant.file, mutant.function, mutant.edit.kind, mutant.before, mutant.after)
        return Result(mutant.id, code != 0, by, seconds, *about)

    def pytest(self, arguments: Sequence[str], limit: float, **variables: str) -> tuple[int, str]:
        """Run pytest on the copy, and nothing of it longer than the limit."""
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
    """Write a source, and forget what was compiled from the one before it."""
    for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
        compiled.unlink()
    file.write_text(source)


def measure(place: Workplace, cache: Path) -> dict[str, float]:
    """Take the time of every test on the untouched source, once for each state of the project.

    They must pass: a test that fails anyway would notice every fault.
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
        if ended not in (0, 5):  # all tests of a file may be slow ones
            raise RuntimeError(f"the tests do not pass without any fault:\n{output}")
        known |= {file: {"state": states[file], "times": {}} for file in new}
        for test, seconds in json.loads(taken.read_text()).items():
            known[test.partition("::")[0]]["times"][test] = seconds
        cache.write_text(json.dumps(known))
    return {test: seconds for f in states for test, seconds in known[f]["times"].items()}


def choose(project: Project, mutant: Mutant, times: Mapping[str, float], budget: float) -> Tests:
    """Choose the tests of a fault by price, the cheapest first, until the budget is spent.

    The price is the time; three times it for a test that is not the part's own, a fifth for one
    that shares a word with the fault and once more if its file imports what the fault changes.
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
