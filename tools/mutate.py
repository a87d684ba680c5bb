"""Mutation testing: make small faults in the source and check that the tests fail.

    python -m tools.mutate --out /tmp/mutants.jsonl --n 160

The working tree is not changed: every worker makes its faults in a copy of `src`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

from tools.mutations import Mutant
from tools.project import Project, equivalents
from tools.trial import Result, Workplace, choose, measure

TESTS: Mapping[str, Sequence[str]] = {
    "samplers": ["tests/samplers", "tests/core/test_laws.py", "tests/generation"],
    "likelihoods": ["tests/likelihoods", "tests/core/test_laws.py"],
    "families": ["tests/families", "tests/training"],
    "training": ["tests/training"],
    "evaluation": ["tests/evaluation"],
    "conditioning": ["tests/conditioning", "tests/core/test_laws.py", "tests/generation"],
}
"""The tests of each mutated package of dsl; its own come first."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutate", description=__doc__)
    parser.add_argument("--out", type=Path, help="JSON lines of results; an existing file resumes")
    parser.add_argument("--n", type=int, default=160, help="number of mutants")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample")
    parser.add_argument("--jobs", type=int, default=1, help="mutants tested in parallel")
    parser.add_argument("--only", nargs="+", choices=TESTS, default=list(TESTS), metavar="PACKAGE")
    parser.add_argument("--budget", type=float, default=20, help="CPU seconds of tests per mutant")
    parser.add_argument("--again", action="store_true", help="test survivors again")
    parser.add_argument("--show", metavar="ID", help="print the diff of a mutant and exit")
    options = parser.parse_args(arguments)

    project = Project(
        Path(__file__).parents[1], "dsl", {name: TESTS[name] for name in options.only}
    )
    if options.show:
        found = [m for m in project.mutants if m.id == options.show]
        print(*(project.diff(m) for m in found), sep="\n")
        return 0 if found else 1
    if options.out is None:
        parser.error("--out is required")
    sample = project.sample(options.n, options.seed)
    same = equivalents(Path(__file__).with_name("equivalent.txt"))
    results = run(
        project,
        [m for m in sample if m.key not in same],
        options.out,
        jobs=options.jobs,
        budget=options.budget,
        again=options.again,
    )
    print(summary(project, sample, results, same))
    return 0


def run(
    project: Project,
    mutants: Sequence[Mutant],
    out: Path,
    *,
    jobs: int = 1,
    budget: float = 20,
    again: bool = False,
) -> dict[str, Result]:
    """Test the mutants that have no result yet; append each result to the file."""
    out.parent.mkdir(parents=True, exist_ok=True)
    results = read(out)
    done = {name for name, r in results.items() if r.killed or not again}
    left = [m for m in mutants if m.id not in done]
    if not left:
        return results
    with TemporaryDirectory(prefix="mutate-") as scratch:
        free: SimpleQueue[Workplace] = SimpleQueue()
        for i in range(jobs):
            free.put(Workplace.set_up(project, Path(scratch) / str(i)))
        place = free.get()
        times = measure(place, out.with_suffix(".times.json"))
        free.put(place)

        def attempt(mutant: Mutant) -> Result:
            place = free.get()
            try:
                return place.attempt(mutant, choose(project, mutant, times, budget))
            finally:
                free.put(place)

        with ThreadPoolExecutor(jobs) as pool, out.open("a") as file:
            for number, result in enumerate(pool.map(attempt, left), 1):
                file.write(json.dumps(asdict(result)) + "\n")
                file.flush()
                results[result.id] = result
                print(f"{number}/{len(left)} {result}", file=sys.stderr)
    return results


def read(out: Path) -> dict[str, Result]:
    """Read the results so far; the last result of a mutant counts."""
    lines = out.read_text().splitlines() if out.exists() else []
    return {result.id: result for result in (Result(**json.loads(line)) for line in lines)}


def summary(
    project: Project,
    sample: Sequence[Mutant],
    results: Mapping[str, Result],
    same: Mapping[tuple[str, ...], str],
) -> str:
    """Return the diffs of survivors and the counts by package."""
    tried = [m for m in sample if m.id in results and m.key not in same]
    alive = [m for m in tried if not results[m.id].killed]
    lines = [f"{project.diff(m)}\n" for m in alive]
    for name in project.tests:
        mine = [m for m in tried if project.owner(m) == name]
        lines.append(_line(name, len(mine), sum(results[m.id].killed for m in mine)))
    lines.append(_line("all", len(tried), len(tried) - len(alive)))
    lines.append(f"judged equivalent and left out: {sum(m.key in same for m in sample)}")
    seconds = sum(results[m.id].seconds for m in tried) / max(1, len(tried))
    lines.append(f"{seconds:.1f} seconds per mutant")
    return "\n".join(lines)


def _line(name: str, tried: int, killed: int) -> str:
    share = f"{killed / tried:.0%}" if tried else "-"
    return f"{name:<12} {tried:>4} tried {killed:>4} killed {tried - killed:>4} survived  {share}"


if __name__ == "__main__":
    sys.exit(main())
