"""The files to mutate, the sample of faults for a seed, and known equivalent faults."""

from __future__ import annotations

import ast
import difflib
import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tools.mutations import KEPT, Defaults, Mutant, mutants

EVERYWHERE = {"steps", "call", "init", "post", "of"}
"""Words that are too common in names to relate a test to a fault."""


@dataclass(frozen=True)
class Project:
    """A package under `src`, and the tests of each of its parts."""

    root: Path
    package: str
    tests: Mapping[str, Sequence[str]]
    """The test paths of each part, relative to the root; its own come first. Test files that
    mention the part belong to it, too."""

    @cached_property
    def sources(self) -> dict[str, str]:
        """The text of every file to mutate, by its path relative to `src`."""
        home = self.root / "src" / self.package
        files: list[Path] = []
        for part in self.tests:
            found = [home / f"{part}.py", *sorted((home / part).rglob("*.py"))]
            found = [path for path in found if path.is_file()]
            if not found:
                raise FileNotFoundError(f"expected source files in {home / part}, got none")
            files += found
        return {p.relative_to(self.root / "src").as_posix(): p.read_text() for p in files}

    @cached_property
    def test_sources(self) -> dict[str, str]:
        """The text of every test file, by its path relative to the root."""
        files = sorted((self.root / "tests").rglob("test_*.py"))
        return {p.relative_to(self.root).as_posix(): p.read_text() for p in files}

    def test_files(self, part: str) -> list[str]:
        """List the test files of a part, its own first."""
        table = [f for path in self.tests[part] for f in self.test_sources if f.startswith(path)]
        if not table:
            raise FileNotFoundError(f"expected tests in {', '.join(self.tests[part])}, got none")
        named = [f for f, text in self.test_sources.items() if f"{self.package}.{part}" in text]
        return list(dict.fromkeys((*table, *named)))

    def near(self, mutant: Mutant) -> set[str]:
        """Return words of a fault's file, class and function, and test files that import it."""
        names = f"{Path(mutant.file).stem} {mutant.function}"
        found = {word.lower() for word in re.findall(r"[A-Z]?[a-z]{2,}", names)} - EVERYWHERE
        module = mutant.file.removesuffix(".py").replace("/", ".")
        return found | {file for file, text in self.test_sources.items() if module in text}

    def owner(self, mutant: Mutant) -> str:
        """Return the part of a mutant."""
        return Path(mutant.file).relative_to(self.package).parts[0].removesuffix(".py")

    @cached_property
    def mutants(self) -> list[Mutant]:
        """All faults of all files."""
        every = (self.root / "src" / self.package).rglob("*.py")
        defaults = set().union(*(defaults_of(path.read_text()) for path in every))
        return [m for file, text in self.sources.items() for m in mutants(file, text, defaults)]

    def sample(self, n: int, seed: int) -> list[Mutant]:
        """Draw n faults, from every file in proportion to its weight.

        The order depends only on names: a larger sample contains the smaller ones of its seed, and
        an edit of one file does not change the sample of others.
        """
        order: dict[str, list[Mutant]] = {}
        for mutant in self.mutants:
            order.setdefault(mutant.file, []).append(mutant)
        for found in order.values():
            found.sort(key=lambda m: -math.log(_uniform(seed, m)) / m.weight)
        shares = {file: sum(m.weight for m in found) for file, found in order.items()}
        taken = dict.fromkeys(order, 0)
        for _ in range(min(n, sum(map(len, order.values())))):
            open_files = [file for file in order if taken[file] < len(order[file])]
            poorest = min(open_files, key=lambda file: (taken[file] + 0.5) / shares[file])
            taken[poorest] += 1
        return [m for file, found in order.items() for m in found[: taken[file]]]

    def diff(self, mutant: Mutant) -> str:
        """Return the diff of a fault."""
        source = self.sources[mutant.file]
        lines = difflib.unified_diff(
            source.splitlines(),
            mutant.apply(source).splitlines(),
            f"{mutant.id} {mutant.file}",
            f"{mutant.function} ({mutant.edit.kind})",
            lineterm="",
        )
        return "\n".join(lines)


def defaults_of(source: str) -> Defaults:
    """Collect the optional arguments of the functions and dataclasses of a file."""
    found: Defaults = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            last = node.args.args[len(node.args.args) - len(node.args.defaults) :]
            pairs = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
            found |= {(node.name, a.arg) for a in last}
            found |= {(node.name, a.arg) for a, value in pairs if value is not None}
        elif isinstance(node, ast.ClassDef):
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and field.value is not None:
                    found.add((node.name, ast.unparse(field.target)))
    return {(name, keyword) for name, keyword in found if keyword not in KEPT}


def _uniform(seed: int, mutant: Mutant) -> float:
    """Return a pseudo-random number in (0, 1) for a seed and a fault."""
    digest = hashlib.sha256(f"{seed} {mutant.id}".encode()).digest()
    return (int.from_bytes(digest[:6], "big") + 0.5) / 2**48


def equivalents(path: Path) -> dict[tuple[str, ...], str]:
    """Read the equivalent faults: a reason for each (file, function, before, after).

    Blocks are separated by empty lines: `file function`, `- before`, `+ after`, and the reason.
    """
    found: dict[tuple[str, ...], str] = {}
    for block in path.read_text().split("\n\n") if path.exists() else []:
        lines = [line for line in block.splitlines() if line and not line.startswith("#")]
        if not lines:
            continue
        if len(lines) < 4 or lines[1][:2] != "- " or lines[2][:2] != "+ ":
            raise ValueError(
                f"{path.name}: a block is 'file function', '- before', '+ after' and a reason, "
                f"got {lines}"
            )
        file, _, function = lines[0].partition(" ")
        found[file, function, lines[1][2:], lines[2][2:]] = " ".join(lines[3:])
    return found
