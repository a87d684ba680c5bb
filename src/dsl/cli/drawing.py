"""What `dsl sample` and `dsl infill` share: drawing a job, its progress, its files, its summary."""

from __future__ import annotations

import hashlib
import json
import shlex
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dsl
from dsl.cli.options import DrawingOptions
from dsl.cli.processes import Process, this_process
from dsl.cli.progress import progress
from dsl.diagnostics.trace import Trace
from dsl.generation import Job, batches, run
from dsl.loading import Model
from dsl.models.folder import WEIGHTS
from dsl.presets import sampler as by_name
from dsl.samples import Sample, Store
from dsl.sampling.sampler import Sampler
from dsl.sampling.specification import from_data, to_data


def read_sampler(text: str) -> Sampler:
    """Build a sampler from its name, or from a YAML file with a full specification."""
    if not text.endswith((".yaml", ".yml", ".json")):
        return by_name(text)
    import yaml

    try:
        return from_data(yaml.safe_load(Path(text).read_text(encoding="utf-8")))
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{text} is not valid YAML: {reason}") from error


def about(job: Job, command: Sequence[str], given: str) -> dict[str, Any]:
    """Say how the sequences of a job are made: enough to make them again."""
    return {
        "dsl": dsl.__version__,
        "command": shlex.join(command),
        "model": job.model.name,
        "weights": _digest(job.model),
        "sampler": to_data(job.sampler),
        "length": job.start.tokens.shape[1],
        "seed": job.seed,
        "given": given,
    }


def draw(job: Job, description: dict[str, Any], options: DrawingOptions) -> None:
    """Draw the sequences that are missing, write them, and sum up."""
    process = this_process()
    store = Store.open(
        options.out,
        description,
        overwrite=options.overwrite,
        rank=process.rank,
        ranks=process.count,
    )
    process.wait()  # until all have read what is there, before anyone adds to it
    missing = [index for index in range(options.n) if index not in store.done]
    began = time.monotonic()
    with store, progress(len(missing), "sampling", visible=process.rank == 0) as bar:
        for indices in batches(missing[process.rank :: process.count], options.batch_size):
            started, batch = time.monotonic(), job.batch(indices)
            trace = Trace(batch.denoiser) if options.trace else None
            state = run(batch, trace.follow if trace else None, lambda s: bar.step(f"step {s}"))
            samples = job.finish(batch, state, time.monotonic() - started)
            if trace:  # first: what is in the store will not be drawn, and so not traced, again
                _append(options, process, trace, fresh=not store.done)
            store.add(samples)
            bar.advance(len(indices) * process.count, state.tokens.numel() * process.count)
            if options.out is None and not options.json:
                _print(samples)
    process.wait()
    if process.rank == 0:
        store.merge()
        _report(store, options, time.monotonic() - began, len(missing))


def _print(samples: list[Sample]) -> None:
    for sample in samples:
        print(sample.text, flush=True)


def _append(options: DrawingOptions, process: Process, trace: Trace, *, fresh: bool) -> None:
    assert options.trace is not None
    path = options.trace
    if process.count > 1:
        path = path.with_name(f"{path.name}.{process.rank}-of-{process.count}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w" if fresh else "a", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in trace.records)


def _report(store: Store, options: DrawingOptions, seconds: float, drawn: int) -> None:
    nfe = [sample.nfe for sample in store.samples.values()]
    tokens = drawn * store.about["length"]
    report = {
        "n": len(store.samples),
        "drawn_now": drawn,
        "seconds": round(seconds, 3),
        "tokens_per_second": round(tokens / seconds, 1) if drawn else None,
        "nfe_mean": statistics.fmean(nfe),
        "nfe_stderr": statistics.stdev(nfe) / len(nfe) ** 0.5 if len(nfe) > 1 else None,
        "out": str(options.out) if options.out else None,
        **store.about,
    }
    if options.json:
        if options.out is None:
            report["samples"] = [store.samples[index].text for index in sorted(store.samples)]
        print(json.dumps(report, ensure_ascii=False))
    elif options.out is not None:
        print(
            f"{report['n']} sequences in {options.out}: {drawn} drawn now in {seconds:.1f} s, "
            f"mean NFE {report['nfe_mean']:.1f}",
            file=sys.stderr,
        )


def _digest(model: Model) -> str | None:
    if model.weights is None:
        return None
    with (model.weights / WEIGHTS).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
