"""`python -m benchmarks`: speed, overhead and exactness, measured on this machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from dsl._util.files import parse_json, require_place, write_text
from dsl._util.validate import SEEDS, within

if TYPE_CHECKING:
    from benchmarks.correction.table import Row


@dataclass(frozen=True)
class BenchOptions:
    """Measure samplers and training on this machine; times are ratios within one run.

    speed: a masked run at T = L with the small network and GPT-2's vocabulary against the plain
    loop. pace: samplers against `mdlm@64` with the bundled model. overhead: time of samplers
    relative to their denoiser calls. parallel: error of revealing several tokens at once against
    the number of steps, on a known distribution. training: a DSL step against an MDLM step on the
    same backbone, a plain matrix product and the data loader. zoo: training step and network call
    of every family against MDLM. memory: peak memory of two training steps of the small network
    with GPT-2's vocabulary at L = 1024. correction: texts with ten kinds of damage, corrected by
    spell checkers, a masked model, and DSL without and with confidences; needs Tesseract and the
    extra correction-bench, and resumes with --out. trust: calibration of Tesseract's confidences.
    belief: the share of changes to its pages that are right. page: one worn page, read and
    corrected; --seed selects it.
    """

    what: tyro.conf.Positional[
        Literal[
            "speed",
            "pace",
            "overhead",
            "parallel",
            "training",
            "zoo",
            "memory",
            "correction",
            "trust",
            "belief",
            "page",
        ]
    ]
    """Benchmark to run."""
    length: int = 1024
    """For speed: tokens and steps."""
    states: int = 8
    """For speed: number of states at which both loops are timed."""
    vocab_size: int = 27
    """For training: vocabulary size; above 257 the small backbone is used instead of the tiny."""
    compile: bool = False
    """For training: also time a DSL step with torch.compile, which takes a minute to compile."""
    texts: int = 60
    """For correction, trust and belief: passages of each kind of damage."""
    only: tuple[str, ...] = ()
    """For correction: name prefixes of kinds of damage, such as "OCR". Default: all."""
    families: tuple[str, ...] = ()
    """For zoo: families to time. Default: all."""
    by: tuple[str, ...] = ()
    """For correction: name prefixes of methods in the table. Default: all."""
    language_model: bool = False
    """For correction: also correct twelve of the texts with SmolLM2, which is slow."""
    masked: Path | None = None
    """For correction: a masked character model to compare with."""
    out: Path | None = None
    """For correction: a .jsonl file of results; rows in it are not measured again."""
    seed: int = 0
    """Random seed."""
    json: bool = False
    """Print JSON instead of a table."""

    def check(self) -> None:
        """Raise ValueError for values out of range."""
        within(self, states=(2, 10**6), length=(2, 10**6), vocab_size=(2, 10**6), seed=SEEDS)
        within(self, texts=(2, 1000))


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    options = tyro.cli(BenchOptions, args=list(arguments), prog="python -m benchmarks")
    options.check()
    from benchmarks import sampling_cost, training_cost, zoo_cost

    rows: list[object] = []
    errors = Console(stderr=True)
    if options.what in ("correction", "trust", "belief", "page"):
        _correction(options, errors)
        return
    if options.what in ("speed", "pace"):
        results = (
            sampling_cost.speed(length=options.length, states=options.states, seed=options.seed)
            if options.what == "speed"
            else sampling_cost.pace(seed=options.seed)
        )
        for result in results:
            if isinstance(result, str):
                errors.print(result)
            else:
                rows.append(result)
    elif options.what == "overhead":
        for name in ("mdlm@64", "remdm-loop@64", "first-hitting@64", "roar"):
            errors.print(f"timing {name}")
            rows.append(sampling_cost.overhead(name, seed=options.seed))
    elif options.what == "training":
        rows.append(
            training_cost.training(
                vocab_size=options.vocab_size, compiled=options.compile, seed=options.seed
            )
        )
    elif options.what == "zoo":
        for cost in zoo_cost.costs(options.families, seed=options.seed):
            errors.print(f"timed {cost.family}")
            rows.append(cost)
    elif options.what == "memory":
        rows.append(training_cost.memory())
    else:
        for name in ("mdlm", "fb", "dfm", "remdm-cap", "remdm-conf", "remdm-loop"):
            for steps in (4, 16, 64, 256):
                errors.print(f"drawing with {name}@{steps}")
                rows.append(sampling_cost.parallel(name, steps, seed=options.seed))
    show([asdict(row) for row in rows], as_json=options.json)  # type: ignore[call-overload]


def _correction(options: BenchOptions, errors: Console) -> None:
    """Measure corrections and print the table."""
    from benchmarks.correction import table

    if options.what in ("trust", "belief"):
        measured = table.measured_trust if options.what == "trust" else table.measured_belief
        found = measured(n=options.texts, seed=options.seed)
        print(json.dumps(asdict(found)))
        return
    if options.what == "page":
        for name, text in table.one_page(options.seed).items():
            print(f"--- {name}\n{text}\n")
        return
    made = [] if options.out is None else _measured(options.out, options)
    for row in table.run(
        n=options.texts,
        seed=options.seed,
        only=options.only,
        by=options.by,
        masked=options.masked,
        language_model=options.language_model,
        done={(row.task, row.rival) for row in made},
    ):
        if isinstance(row, str):
            errors.print(row)
            continue
        made.append(row)
        if options.out is not None:
            with options.out.open("a", encoding="utf-8") as kept:
                kept.write(json.dumps(asdict(row)) + "\n")
    if not made:
        raise ValueError(
            "--only and --by must be name prefixes of damage and methods, "
            f"got {', '.join((*options.only, *options.by))}"
        )
    if options.json:
        print(json.dumps([asdict(row) for row in made]))
        return
    show([row.flat() for row in made], as_json=False)


def _measured(path: Path, options: BenchOptions) -> list[Row]:
    """Read the rows of an earlier run; raise ValueError if its settings differ."""
    from benchmarks.correction.table import ASKED, Row
    from dsl._util import config as strict

    require_place(path)
    *lines, last = path.read_bytes().split(b"\n") if path.exists() else [b""]
    if last:  # a crash cut the line off, or only its newline is missing
        try:
            parse_json(last, str(path))
        except ValueError:
            last = b""
        lines += [last] if last else []
        write_text(path, b"".join(line + b"\n" for line in lines).decode())
    rows = [strict.read(Row, parse_json(line, str(path)), str(path)) for line in lines]
    for row in rows:
        if row.seed != options.seed or row.texts not in (options.texts, min(ASKED, options.texts)):
            raise ValueError(
                f"{path} must have rows of {options.texts} texts and seed {options.seed}, "
                f"got {row.texts} and {row.seed}; use another --out"
            )
    return rows


MOST_COLUMNS = 7
"""Columns that fit side by side."""


def show(rows: list[dict[str, object]], *, as_json: bool) -> None:
    """Print rows as JSON or as a table, which is transposed if they have many fields."""
    if as_json:
        print(json.dumps(rows))
        return
    if len(rows[0]) > MOST_COLUMNS:
        table = Table("measure", *("value" for _ in rows), box=SIMPLE_HEAD)
        for name in rows[0]:
            table.add_row(_words(name), *(_shown(row[name]) for row in rows))
    else:
        table = Table(*map(_words, rows[0]), box=SIMPLE_HEAD)
        for row in rows:
            table.add_row(*map(_shown, row.values()))
    Console().print(table)


def _words(name: str) -> str:
    """Return a field's name with spaces, so that it can be wrapped."""
    return name.replace("_", " ")


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (ValueError, OSError, ImportError) as error:
        sys.exit(f"benchmarks: {error}")
