"""Compare models and samplers over steps and seeds: draw, measure with one protocol, summarize."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache as memoised
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from dsl._util import files
from dsl._util.processes import this_process
from dsl.checkpoints.loading import Model, load
from dsl.evaluation.measurement import Tell, build, require_known
from dsl.evaluation.settings import JudgeSettings
from dsl.evaluation.suite import MEASURES, require_same, text_hash
from dsl.generation.engine import Sink, run
from dsl.generation.options import SampleOptions
from dsl.generation.request import Request, completion, named_sampler, require_fit
from dsl.generation.samples import IDENTITY, read
from dsl.likelihoods.estimate import Mean


@dataclass(frozen=True)
class Cell:
    """One file of samples."""

    model: str
    family: str
    """The sampler with T as a placeholder: one line of the figure."""
    sampler: str
    seed: int

    def file(self, out: Path, suffix: str) -> Path:
        """Return the path of this cell's samples or result."""
        name = re.sub(r"[^\w.+=-]", "_", f"{self.model}--{self.sampler}--{self.seed}")
        return out / "cells" / f"{name}{suffix}"

    @property
    def row(self) -> str:
        """The name of this cell's row in the table, the same for all seeds."""
        return f"{self.model}/{self.sampler}"


DRAWN_BY = {"temperature": "temperature", "top_p": "top-p", "top_k": "top-k"}
"""Fields of a draw, and their names in messages."""
CALLS, TRAINING = "denoiser calls", "training tokens"
ALIKE = 0.05
"""Numbers of calls that differ by less than this share count as equal."""


@dataclass(frozen=True)
class Difference:
    """A setting that differs between rows."""

    setting: str
    values: Mapping[str, Any]
    """The setting of every row."""
    by_default: tuple[str, ...] = ()
    """Rows that have another value only because it is the default of their sampler."""

    @property
    def text(self) -> str:
        """The difference as a sentence."""
        groups: dict[Any, list[str]] = {}
        for row, value in self.values.items():
            groups.setdefault(value, []).append(row)
        listed = "; ".join(f"{value}: {', '.join(rows)}" for value, rows in groups.items())
        warning = ""
        if self.by_default:
            warning = f" (by default, not by choice, in {', '.join(self.by_default)})"
        return f"{self.setting} differs between rows{warning}: {listed}"

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        return {
            "setting": self.setting,
            "values": {row: str(value) for row, value in self.values.items()},
            "by_default": list(self.by_default),
        }


def differences(
    results: Mapping[Cell, Mapping[str, Any]], models: Mapping[str, Model]
) -> list[Difference]:
    """List the settings in which rows differ.

    Args:
        results: The measured cells.
        models: The models by name, for their training tokens.
    """
    rows: dict[str, list[Cell]] = {}
    for cell in results:
        rows.setdefault(cell.row, []).append(cell)
    found = [_drawn(field, rows, results) for field in DRAWN_BY]
    calls = {
        row: round(fmean(results[cell]["nfe"]["mean"] for cell in cells), 1)
        for row, cells in rows.items()
    }
    steps = {row: _steps(cells[0].sampler) for row, cells in rows.items()}
    for asked in set(steps.values()):  # rows that were given different steps differ by choice
        alike = [n for row, n in calls.items() if None in steps.values() or steps[row] == asked]
        if max(alike) > (1 + ALIKE) * min(alike):
            found.append(Difference(CALLS, calls))
            break
    budgets = {row: models[cells[0].model].trained_on for row, cells in rows.items()}
    shown = {r: "unknown" if n is None else f"{n:,}" for r, n in budgets.items()}
    found.append(_if_any(TRAINING, shown))
    return [difference for difference in found if difference is not None]


def _steps(sampler: str) -> int | None:
    """Return the steps in the name of a sampler, as in mdlm@64 or hybrid@16+32, if given."""
    given = re.search(r"@([0-9+]+)", sampler)
    return sum(map(int, re.findall("[0-9]+", given[1]))) if given else None


def _drawn(
    field: str, rows: Mapping[str, list[Cell]], results: Mapping[Cell, Mapping[str, Any]]
) -> Difference | None:
    values = {
        row: ", ".join(
            dict.fromkeys(str(v) for v in _fields(results[cells[0]]["about"]["sampler"], field))
        )
        for row, cells in rows.items()
    }
    usual = max(set(values.values()), key=list(values.values()).count)
    unchosen = [
        row
        for row, cells in rows.items()
        if values[row] != usual and f"{field}=" not in cells[0].sampler
    ]
    return _if_any(DRAWN_BY[field], values, tuple(unchosen))


def _if_any(
    setting: str, values: Mapping[str, Any], by_default: tuple[str, ...] = ()
) -> Difference | None:
    return Difference(setting, values, by_default) if len(set(values.values())) > 1 else None


def _fields(data: Any, name: str) -> Iterator[Any]:
    """Yield a field of every draw in the description of a sampler."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            if key == "draw" and isinstance(value, Mapping):
                yield value.get(name)
            else:
                yield from _fields(value, name)
    elif isinstance(data, list):
        for value in data:
            yield from _fields(value, name)


def summarise(results: Mapping[Cell, dict[str, Any]]) -> list[dict[str, Any]]:
    """Average over seeds, with the standard error over seeds or that of a single seed."""
    rows = []
    for key in dict.fromkeys((c.model, c.family, c.sampler) for c in results):
        found = [r for c, r in results.items() if (c.model, c.family, c.sampler) == key]
        row: dict[str, Any] = {"model": key[0], "sampler": key[1], "path": key[2]}
        row["nfe"] = fmean(r["nfe"]["mean"] for r in found)
        row["tokens_per_second"] = fmean(r["tokens_per_second"] or 0.0 for r in found)
        for name in found[0]["scores"]:
            values = [r["scores"][name]["mean"] for r in found]
            if None in values:
                continue  # the texts were too short
            mean = Mean.of(values)
            row[name] = mean.mean
            if len(values) > 1:
                row[f"{name}_stderr"] = mean.stderr
            elif "stderr" in found[0]["scores"][name]:
                row[f"{name}_stderr"] = found[0]["scores"][name]["stderr"]
        rows.append(row)
    return rows


def markdown(rows: Sequence[dict[str, Any]], held_out: Mapping[str, float]) -> str:
    """Return the table in Markdown: real text first, then every model and path."""
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


@dataclass(frozen=True)
class Grid:
    """The cells of a comparison, and how to draw them."""

    cells: Sequence[str]
    """MODEL/SAMPLER; T is replaced by every number of steps."""
    steps: Sequence[int] = (8, 16, 32, 64, 128)
    seeds: int = 3
    """Seeds 0, 1, … of the samples."""
    n: int = 256
    """Samples in a cell."""
    length: int | None = None
    """Tokens per sample. Default: the model's length."""
    batch_size: int = 64
    workers: int = 1
    """Cells drawn in parallel; they share the CPU cores."""
    device: str = "cpu"
    """Device of the networks."""

    def __post_init__(self) -> None:
        if min(self.seeds, self.n, self.workers, self.batch_size, *self.steps) < 1:
            raise ValueError("--seeds-drawn, -n, --workers, --batch-size and --steps must be >= 1")
        bad = [cell for cell in self.cells if not re.fullmatch(r".+/[^/]+", cell)]
        if bad or not self.cells:
            raise ValueError(f"a cell is MODEL/SAMPLER, such as text8-tiny/mdlm@T; got {bad}")

    def __iter__(self) -> Iterator[Cell]:
        """Yield every cell once."""
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
        """Raise an error for unknown models and samplers, and for pairs that do not fit."""
        for cell in self:
            model = self.model(cell.model)
            model.require_length(self.length or model.length)
            require_fit(model, named_sampler(cell.sampler))


@memoised
def _loaded(name: str, length: int | None, device: str) -> Model:
    return load(name, length=length, device=device)


@dataclass(frozen=True)
class Comparison:
    """The results of a comparison."""

    record: dict[str, Any]
    """All results, for JSON."""
    differences: Sequence[Difference]
    """Confounders: settings that differ between rows unintentionally."""

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
    """Draw and measure the missing cells, and summarize all.

    Args:
        grid: The cells.
        settings: The reference and the judges.
        out: Output directory for samples, their results and results.json. Finished cells are kept.
        force: Also compare results that were measured with different protocols.
        command: The command line, for the record.
        tell: Called with a note about the current work.
        on_cell: Called with the number of drawn cells and the total.
    """
    settings.check()
    require_known(settings)
    grid.require_known()
    out = Path(out)
    (out / "cells").mkdir(parents=True, exist_ok=True)
    with files.locked(out, rank=this_process().rank):
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
    """Draw every incomplete cell, `grid.workers` at a time; each continues its own file."""
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
                "a worker process has died; its samples are kept, and the same command continues"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _draw_cell(cell: Cell, grid: Grid, out: Path) -> None:
    try:
        run(_request(cell, grid), Sink(cell.file(out, ".jsonl"), command=_command(cell, grid)))
    except ValueError as error:
        raise ValueError(f"{cell.model}/{cell.sampler}, seed {cell.seed}: {error}") from error


def _request(cell: Cell, grid: Grid) -> Request:
    options = SampleOptions(
        n=grid.n,
        sampler=cell.sampler,
        length=grid.length,
        seed=cell.seed,
        batch_size=grid.batch_size,
    )
    return completion(grid.model(cell.model), options)


def _command(cell: Cell, grid: Grid) -> str:
    length = grid.length or grid.model(cell.model).length
    command = ["dsl", "sample", "-n", str(grid.n), "--model", cell.model]
    command += ["--sampler", cell.sampler, "--seed", str(cell.seed), "--length", str(length)]
    return shlex.join(command)


def _complete(cell: Cell, grid: Grid, out: Path) -> bool:
    """Whether the cell's file has all its samples. Drawing rejects a file of another request."""
    path = cell.file(out, ".jsonl")
    if not path.is_file():
        return False
    found, samples = read(path)
    wanted = json.loads(json.dumps(_request(cell, grid).about("")))
    same = all(found.get(key) == wanted[key] for key in IDENTITY)
    return same and len(samples) >= grid.n


def measure(
    grid: Grid, settings: JudgeSettings, out: Path, tell: Tell
) -> dict[Cell, dict[str, Any]]:
    """Measure every cell without a result of this protocol."""
    results: dict[Cell, dict[str, Any]] = {}
    built: dict[Any, Any] = {}
    for cell in grid:
        made, samples = read(cell.file(out, ".jsonl"))
        model = grid.model(cell.model)
        reads = model.tokenizer and model.tokenizer.to_str()
        kind = (reads, made["length"], model.documents, model.share)
        if kind not in built:  # models with one tokenizer and length share a judge
            built[kind] = build(settings, model, grid.n, made["length"], tell)
        judge, path = built[kind], cell.file(out, ".json")
        if path.is_file():
            result = files.parse_json(path.read_bytes(), str(path))
            known = result if isinstance(result, dict) else {}
            same = known.get("samples_hash") == text_hash([s.text for s in samples[: grid.n]])
            if same and known.get("protocol") == json.loads(json.dumps(judge.protocol())):
                results[cell] = result
                continue
        tell(f"measuring {cell.model}/{cell.sampler}, seed {cell.seed}")
        result = json.loads(json.dumps(judge.samples(samples[: grid.n], made)))
        files.write_text(path, json.dumps(result, indent=2) + "\n")
        results[cell] = result
    return results
