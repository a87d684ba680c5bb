"""A grid of models, samplers, steps and seeds: drawn, measured by one protocol, and summed up."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache as memoised
from pathlib import Path
from typing import Any

import torch

from dsl import files, presets
from dsl.drawing import Drawing, completions
from dsl.evaluation.cell import Cell
from dsl.evaluation.fairness import Difference, differences
from dsl.evaluation.measurement import Tell, build, require_known
from dsl.evaluation.protocol import require_same, text_hash
from dsl.evaluation.settings import JudgeSettings
from dsl.evaluation.summary import summarise
from dsl.loading import Model, load
from dsl.processes import rank
from dsl.provenance import about
from dsl.sample_file import IDENTITY, read
from dsl.serving import require_served


@dataclass(frozen=True)
class Grid:
    """What is compared."""

    cells: Sequence[str]
    """MODEL/SAMPLER, in which T stands for every number of steps."""
    steps: Sequence[int] = (8, 16, 32, 64, 128)
    seeds: int = 3
    """Seeds 0, 1, … of the samples."""
    n: int = 256
    """Samples in a cell."""
    length: int | None = None
    """Tokens in a sample; the model's own length if not given."""
    batch_size: int = 64
    workers: int = 1
    """Cells drawn at the same time; they share the processor's cores."""
    device: str = "cpu"
    """Where the networks run."""

    def __post_init__(self) -> None:
        if min(self.seeds, self.n, self.workers, self.batch_size, *self.steps) < 1:
            raise ValueError("--seeds-drawn, -n, --workers, --batch-size and --steps must be >= 1")
        bad = [cell for cell in self.cells if not re.fullmatch(r".+/[^/]+", cell)]
        if bad or not self.cells:
            raise ValueError(f"a cell is MODEL/SAMPLER, such as text8-tiny/mdlm@T; got {bad}")

    def __iter__(self) -> Iterator[Cell]:
        """List the cells, each once."""
        for text in dict.fromkeys(self.cells):
            model, _, family = text.rpartition("/")
            for steps in self.steps if re.search(r"\bT\b", family) else (0,):
                sampler = re.sub(r"\bT\b", str(steps), family)
                for seed in range(self.seeds):
                    yield Cell(model, family, sampler, seed)

    def model(self, name: str) -> Model:
        """Load a model once."""
        return _loaded(name, self.length, self.device)

    def require_known(self) -> None:
        """Refuse models and samplers that there are not, or that do not fit, before any work."""
        for cell in self:
            model = self.model(cell.model)
            model.require_length(self.length or model.length)
            require_served(model, presets.sampler(cell.sampler))


@memoised
def _loaded(name: str, length: int | None, device: str) -> Model:
    return load(name, length=length, device=device)


@dataclass(frozen=True)
class Comparison:
    """What a grid came to."""

    record: dict[str, Any]
    """Everything, ready for JSON."""
    differences: Sequence[Difference]
    """What the rows differ in besides what they are compared for."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for every model and path, averaged over seeds."""
        rows: list[dict[str, Any]] = self.record["rows"]
        return rows

    @property
    def held_out(self) -> dict[str, float]:
        """The scores of real text."""
        return {name: score["mean"] for name, score in self.record["held_out"].items()}


def compare(
    grid: Grid,
    settings: JudgeSettings,
    out: str | Path,
    *,
    force: bool = False,
    command: Sequence[str] = (),
    tell: Tell = lambda _: None,
    on_cell: Callable[[int, int], None] = lambda *_: None,
) -> Comparison:
    """Draw what is missing, measure what is not measured, sum up.

    Args:
        grid: What is compared.
        settings: What samples are held against.
        out: Where samples, a result for each and results.json go; what is there is kept.
        force: Compare even results that were measured by different protocols.
        command: The words of the command line, for the record.
        tell: Told what is being done.
        on_cell: Told how many cells are drawn, of how many.
    """
    settings.check()
    require_known(settings)
    grid.require_known()
    out = Path(out)
    (out / "cells").mkdir(parents=True, exist_ok=True)
    with files.locked(out, rank=rank()):
        draw(grid, out, on_cell)
        results = measure(grid, settings, out, tell)
        require_same(
            {str(cell.file(out, "")): r["protocol"] for cell, r in results.items()}, force=force
        )
        models = {cell.model: grid.model(cell.model) for cell in results}
        found = differences(results, models)
        first = next(iter(results.values()))
        record = {
            "command": list(command),
            "samples": grid.n,
            "seeds": grid.seeds,
            "protocol": first["protocol"],
            "held_out": first["held_out"],
            "differences": [difference.to_dict() for difference in found],
            "rows": summarise(results),
        }
        files.write_text(out / "results.json", json.dumps(record, indent=2) + "\n")
    return Comparison(record, found)


def draw(grid: Grid, out: Path, on_cell: Callable[[int, int], None]) -> None:
    """Draw every cell that is not complete, some at a time; each takes up what it finds."""
    missing = [cell for cell in grid if not _complete(cell, grid, out)]
    threads = max(1, (os.cpu_count() or 1) // grid.workers)
    on_cell(0, len(missing))
    if grid.workers == 1:
        for done, cell in enumerate(missing, 1):
            _draw_cell(cell, grid, out)
            on_cell(done, len(missing))
        return
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        grid.workers, spawn, initializer=torch.set_num_threads, initargs=(threads,)
    ) as pool:
        futures = [pool.submit(_draw_cell, cell, grid, out) for cell in missing]
        try:
            for done, future in enumerate(as_completed(futures), 1):
                future.result()
                on_cell(done, len(missing))
        except BrokenProcessPool as error:
            raise ValueError(
                "a process that was drawing has died; what it had drawn is kept, the same "
                "command goes on"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _draw_cell(cell: Cell, grid: Grid, out: Path) -> None:
    model, sampler = grid.model(cell.model), presets.sampler(cell.sampler)
    length = grid.length or model.length
    texts = completions(model, sampler, [""], length=length, n=grid.n, seed=cell.seed)
    try:
        Drawing(_about(cell, grid), cell.file(out, ".jsonl")).run(
            len(texts), texts.parts(grid.batch_size)
        )
    except ValueError as error:
        raise ValueError(f"{cell.model}/{cell.sampler}, seed {cell.seed}: {error}") from error


def _about(cell: Cell, grid: Grid) -> dict[str, Any]:
    model = grid.model(cell.model)
    length = grid.length or model.length
    command = ["dsl", "sample", "-n", str(grid.n), "--model", cell.model]
    command += ["--sampler", cell.sampler, "--seed", str(cell.seed), "--length", str(length)]
    return about(
        model,
        presets.sampler(cell.sampler),
        length=length,
        seed=cell.seed,
        given=f"[{length}]",
        command=command,
    )


def _complete(cell: Cell, grid: Grid, out: Path) -> bool:
    """Whether a file holds all samples of this very job; one of another job is left to refuse."""
    path = cell.file(out, ".jsonl")
    if not path.is_file():
        return False
    found, samples = read(path)
    wanted = json.loads(json.dumps(_about(cell, grid)))
    same = all(found.get(key) == wanted[key] for key in IDENTITY)
    return same and len(samples) >= grid.n


def measure(
    grid: Grid, settings: JudgeSettings, out: Path, tell: Tell
) -> dict[Cell, dict[str, Any]]:
    """Measure every cell that has no result by this protocol yet."""
    results: dict[Cell, dict[str, Any]] = {}
    built: dict[Any, Any] = {}
    for cell in grid:
        made, samples = read(cell.file(out, ".jsonl"))
        model = grid.model(cell.model)
        reads = model.tokenizer and model.tokenizer.to_str()
        kind = (reads, made["length"], model.documents, model.share)
        if kind not in built:  # models that read alike are measured by one judge
            built[kind] = build(settings, model, grid.n, made["length"], tell)
        judge, path = built[kind], cell.file(out, ".json")
        if path.is_file():
            result = files.parse_json(path.read_bytes(), str(path))
            same = result["samples_hash"] == text_hash([s.text for s in samples[: grid.n]])
            if same and result["protocol"] == json.loads(json.dumps(judge.protocol())):
                results[cell] = result
                continue
        tell(f"measuring {cell.model}/{cell.sampler}, seed {cell.seed}")
        result = json.loads(json.dumps(judge.samples(samples[: grid.n], made)))
        files.write_text(path, json.dumps(result, indent=2) + "\n")
        results[cell] = result
    return results
