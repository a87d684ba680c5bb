"""`dsl compare`: a grid of models, samplers, steps and seeds, cell by cell, into one table."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any

import tyro

from dsl.cli.evaluate import JudgeOptions, build
from dsl.cli.options import parse


@dataclass(frozen=True, kw_only=True)
class CompareOptions(JudgeOptions):
    """Compare samplers on one or more models: quality against true denoiser calls.

    A CELL is MODEL/SAMPLER, in which T stands for every number of --steps: text8-tiny/mdlm@T,
    text8-tiny-ar/causal. Each is drawn with every seed. Cells that are finished are not drawn
    again; the same command goes on where it stopped. OUT holds the samples, a result for each,
    results.json, a Markdown table and the figure.
    """

    cells: tyro.conf.Positional[tuple[str, ...]]
    """What to draw."""
    out: Path
    """Where everything goes."""
    steps: tuple[int, ...] = (8, 16, 32, 64, 128)
    """The values of T."""
    seeds_drawn: int = 3
    """Seeds 0, 1, … of the samples."""
    n: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 256
    """Samples in a cell."""
    length: int | None = None
    """Tokens in a sample; the model's own length if not given."""
    batch_size: int = 64
    """Samples drawn side by side."""
    workers: int = 1
    """Cells drawn at the same time; they share the processor's cores."""
    force: bool = False
    """Compare even results that were measured by different protocols."""
    json: bool = False
    """Print results.json instead of the table."""

    def check(self) -> None:
        """Refuse values that no run can have."""
        super().check()
        if min(self.seeds_drawn, self.n, self.workers, self.batch_size, *self.steps) < 1:
            raise ValueError("--seeds-drawn, -n, --workers, --batch-size and --steps must be >= 1")
        bad = [cell for cell in self.cells if not re.fullmatch(r".+/[^/]+", cell)]
        if bad or not self.cells:
            raise ValueError(f"a cell is MODEL/SAMPLER, such as text8-tiny/mdlm@T; got {bad}")


@dataclass(frozen=True)
class Cell:
    """One file of samples."""

    model: str
    family: str
    """The sampler with T left open: one line of the figure."""
    sampler: str
    seed: int

    def file(self, out: Path, suffix: str) -> Path:
        """Return where this cell's samples or result are."""
        name = re.sub(r"[^\w.+=-]", "_", f"{self.model}--{self.sampler}--{self.seed}")
        return out / "cells" / f"{name}{suffix}"


def grid(options: CompareOptions) -> Iterator[Cell]:
    """List the cells, each once."""
    for text in dict.fromkeys(options.cells):
        model, _, family = text.rpartition("/")
        open_steps = re.search(r"\bT\b", family)
        for steps in options.steps if open_steps else (0,):
            sampler = re.sub(r"\bT\b", str(steps), family)
            for seed in range(options.seeds_drawn):
                yield Cell(model, family, sampler, seed)


def main(arguments: Sequence[str]) -> None:
    """Draw what is missing, measure what is not measured, sum up."""
    options = parse(CompareOptions, "compare", arguments)
    from dsl.cli.processes import locked
    from dsl.evaluation.protocol import require_same
    from dsl.presets import sampler

    cells = list(grid(options))
    for cell in cells:
        sampler(cell.sampler)  # a name that is wrong is refused before anything is drawn
    (options.out / "cells").mkdir(parents=True, exist_ok=True)
    with locked(options.out):
        draw(cells, options)
        results = measure(cells, options)
    require_same(
        {str(cell.file(options.out, "")): r["protocol"] for cell, r in results.items()},
        force=options.force,
    )
    rows = summarise(results)
    held_out = {k: v["mean"] for k, v in next(iter(results.values()))["held_out"].items()}
    record = {
        "command": ["dsl", "compare", *arguments],
        "samples": options.n,
        "seeds": options.seeds_drawn,
        "protocol": next(iter(results.values()))["protocol"],
        "held_out": next(iter(results.values()))["held_out"],
        "rows": rows,
    }
    (options.out / "results.json").write_text(json.dumps(record, indent=2) + "\n")
    table = markdown(rows, held_out)
    (options.out / "table.md").write_text(table)
    _figure(rows, held_out, options.out / "tradeoff.svg")
    print(json.dumps(record) if options.json else table, end="\n")


def draw(cells: Sequence[Cell], options: CompareOptions) -> None:
    """Run `dsl sample` for every cell, some at a time; each takes up what it finds."""
    from rich.console import Console
    from rich.progress import Progress

    threads = max(1, (os.cpu_count() or 1) // options.workers)
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}

    def one(cell: Cell) -> None:
        command = [sys.executable, "-m", "dsl", "sample", "-n", str(options.n)]
        command += ["--model", cell.model, "--sampler", cell.sampler, "--seed", str(cell.seed)]
        command += ["--batch-size", str(options.batch_size), "--json"]
        command += ["--out", str(cell.file(options.out, ".jsonl"))]
        command += [] if options.length is None else ["--length", str(options.length)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["it gave no reason"]
            raise ValueError(f"{cell.model}/{cell.sampler}, seed {cell.seed}: {lines[-1]}")

    missing = [cell for cell in cells if not _complete(cell, options)]
    console = Console(stderr=True)
    with (
        Progress(console=console, transient=True, disable=not console.is_terminal) as bar,
        ThreadPoolExecutor(options.workers) as pool,
    ):
        task = bar.add_task("drawing", total=len(missing))
        futures = [pool.submit(one, cell) for cell in missing]
        try:
            for done, future in enumerate(as_completed(futures), 1):
                future.result()
                bar.advance(task)
                if not console.is_terminal:
                    console.print(f"drew {done} of {len(missing)} cells")
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _complete(cell: Cell, options: CompareOptions) -> bool:
    """Whether a file holds all samples of this very job; one of another job is left to refuse."""
    from dsl.cli.drawing import about
    from dsl.generation import Job, Start
    from dsl.loading import load
    from dsl.presets import sampler
    from dsl.samples import IDENTITY, read

    path = cell.file(options.out, ".jsonl")
    if not path.is_file():
        return False
    found, samples = read(path)
    model = load(cell.model, length=options.length)
    length = options.length or model.length
    job = Job(model, sampler(cell.sampler), Start.blank(length), cell.seed)
    wanted = json.loads(json.dumps(about(job, [], f"[{length}]")))
    same = all(found.get(key) == wanted[key] for key in IDENTITY)
    return same and len(samples) >= options.n


def measure(cells: Sequence[Cell], options: CompareOptions) -> dict[Cell, dict[str, Any]]:
    """Measure every cell that has no result by this protocol yet."""
    from rich.console import Console

    from dsl.evaluation.protocol import text_hash
    from dsl.loading import load
    from dsl.samples import read

    results: dict[Cell, dict[str, Any]] = {}
    built: dict[Any, Any] = {}
    with Console(stderr=True).status("preparing") as status:
        for cell in cells:
            about, samples = read(cell.file(options.out, ".jsonl"))
            model = load(cell.model, length=about["length"])
            kind = (model.tokenizer and model.tokenizer.to_str(), about["length"])
            if kind not in built:  # models that read alike are measured by one judge
                built[kind] = build(options, model, options.n, about["length"], status.update)
            judge = built[kind]
            path = cell.file(options.out, ".json")
            if path.is_file():
                result = json.loads(path.read_text())
                same = result["samples_hash"] == text_hash([s.text for s in samples[: options.n]])
                if same and result["protocol"] == json.loads(json.dumps(judge.protocol())):
                    results[cell] = result
                    continue
            status.update(f"measuring {cell.model}/{cell.sampler}, seed {cell.seed}")
            result = json.loads(json.dumps(judge.samples(samples[: options.n], about)))
            path.write_text(json.dumps(result, indent=2) + "\n")
            results[cell] = result
    return results


def summarise(results: dict[Cell, dict[str, Any]]) -> list[dict[str, Any]]:
    """Average over seeds; the error is the standard error over seeds, or that of the only one."""
    rows = []
    for key in dict.fromkeys((c.model, c.family, c.sampler) for c in results):
        found = [r for c, r in results.items() if (c.model, c.family, c.sampler) == key]
        row: dict[str, Any] = {"model": key[0], "sampler": key[1], "path": key[2]}
        row["nfe"] = fmean(r["nfe"]["mean"] for r in found)
        row["tokens_per_second"] = fmean(r["tokens_per_second"] or 0.0 for r in found)
        for name in found[0]["scores"]:
            values = [r["scores"][name]["mean"] for r in found]
            if None in values:
                continue  # too short to say
            row[name] = fmean(values)
            if len(values) > 1:
                row[f"{name}_stderr"] = stdev(values) / len(values) ** 0.5
            elif "stderr" in found[0]["scores"][name]:
                row[f"{name}_stderr"] = found[0]["scores"][name]["stderr"]
        rows.append(row)
    return rows


def markdown(rows: Sequence[dict[str, Any]], held_out: dict[str, float]) -> str:
    """Write the table: real text first, then every model and path."""
    from dsl.evaluation.protocol import MEASURES

    names = [name for name in MEASURES if any(name in row for row in rows)]
    lines = ["| model | path | denoiser calls | " + " | ".join(MEASURES[n] for n in names) + " |"]
    lines.append("|---|---|---|" + "---|" * len(names))
    real = ["" if held_out.get(n) is None else f"{held_out[n]:.4g}" for n in names]
    lines.append("| held-out real text | | | " + " | ".join(real) + " |")
    for row in rows:
        cells = []
        for name in names:
            error = row.get(f"{name}_stderr")
            value = "" if name not in row else f"{row[name]:.4g}"
            cells.append(value + ("" if error is None else f" ± {error:.2g}"))
        lines.append(f"| {row['model']} | {row['path']} | {row['nfe']:.1f} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _figure(rows: list[dict[str, Any]], held_out: dict[str, float], path: Path) -> None:
    try:
        from dsl.figures.tradeoff import tradeoff

        tradeoff(rows, held_out, path)
    except ImportError as error:
        print(f"no figure: {error}", file=sys.stderr)
