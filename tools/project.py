"""The files that get faults, which faults a seed takes of them, and which are known to be none."""

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
"""Words of so many names that they say nothing."""


@dataclass(frozen=True)
class Project:
    """A package under `src`, and the tests of each of its parts."""

    root: Path
    package: str
    tests: Mapping[str, Sequence[str]]
    """Part of the package to the paths of its tests, from the root; its own come first. Every
    test file that names the part belongs to it, too."""

    @cached_property
    def sources(self) -> dict[str, str]:
        """The text of every file that gets faults, by its path from `src`."""
        home = self.root / "src" / self.package
        files: list[Path] = []
        for part in self.tests:
            found = [home / f"{part}.py", *sorted((home / part).rglob("*.py"))]
            found = [path for path in found if path.is_file()]
            if not found:
                raise FileNotFoundError(f"neither {home / part} nor {part}.py holds any source")
            files += found
        return {p.relative_to(self.root / "src").as_posix(): p.read_text() for p in files}

    @cached_property
    def test_sources(self) -> dict[str, str]:
        """The text of every file of tests, by its path from the root."""
        files = sorted((self.root / "tests").rglob("test_*.py"))
        return {p.relative_to(self.root).as_posix(): p.read_text() for p in files}

    def test_files(self, part: str) -> list[str]:
        """List the files that test a part, its own first."""
        table = [f for path in self.tests[part] for f in self.test_sources if f.startswith(path)]
        if not table:
            raise FileNotFoundError(f"none of {', '.join(self.tests[part])} holds any test")
        named = [f for f, text in self.test_sources.items() if f"{self.package}.{part}" in text]
        return list(dict.fromkeys((*table, *named)))

    def near(self, mutant: Mutant) -> set[str]:
        """Return the words of a fault's file, class and function, and the files that import it."""
        names = f"{Path(mutant.file).stem} {mutant.function}"
        found = {word.lower() for word in re.findall(r"[A-Z]?[a-z]{2,}", names)} - EVERYWHERE
        module = mutant.file.removesuffix(".py").replace("/", ".")
        return found | {file for file, text in self.test_sources.items() if module in text}

    def owner(self, mutant: Mutant) -> str:
        """Return the part that a mutant belongs to."""
        return Path(mutant.file).relative_to(self.package).parts[0].removesuffix(".py")

    @cached_property
    def mutants(self) -> list[Mutant]:
        """Every fault of every file."""
        every = (self.root / "src" / self.package).rglob("*.py")
        defaults = set().union(*(defaults_of(path.read_text()) for path in every))
        return [m for file, text in self.sources.items() for m in mutants(file, text, defaults)]

    def sample(self, n: int, seed: int) -> list[Mutant]:
        """Take n faults: of every file its share by weight, in an order that only names decide.

        So more faults of one seed contain the fewer, and an edit of a file leaves the others'.
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
        """Show a fault."""
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
    """Collect what functions and dataclasses of a file let a caller leave out."""
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
    """Return a number in (0, 1) that belongs to a seed and a fault."""
    digest = hashlib.sha256(f"{seed} {mutant.id}".encode()).digest()
    return (int.from_bytes(digest[:6], "big") + 0.5) / 2**48


def equivalents(path: Path) -> dict[tuple[str, ...], str]:
    """Read the faults that change nothing: a reason for each (file, function, before, after).

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
