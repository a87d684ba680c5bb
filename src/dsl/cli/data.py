"""`dsl data`: download, verify and describe a corpus."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import tyro

from dsl.cli.options import parse
from dsl.evaluation import PACKAGED


@dataclass(frozen=True)
class Options:
    """Download a corpus into the cache, verify it, and describe its contents.

    A corpus is one of the names below, with a size for those that need or accept one (cyclic-7,
    markov-12, stories-1000); datasets:NAME, on the hub or in a folder; or the path of a text,
    .jsonl or .parquet file or of a folder of them. The names of judges download the pretrained
    models of `dsl evaluate`. docs/training.md describes the corpora.

    Example: dsl data text8-prefix
    """

    choices: ClassVar[dict[str, str | list[str]]] = {
        "Corpora": "dsl.corpora",
        "Judges": list(PACKAGED),
    }
    name: tyro.conf.Positional[str]
    """Corpus name or path."""
    cache: Path | None = None
    """Cache directory. Default: DSL_CACHE, or the user's cache directory."""
    json: bool = False
    """Print JSON instead of a table."""


def main(arguments: Sequence[str]) -> None:
    """Run `dsl data`."""
    options = parse(Options, "data", arguments)
    from rich.console import Console
    from rich.table import Table

    from dsl.cli.progress import progress
    from dsl.data import default_cache, prepare, verify

    if options.name in PACKAGED:
        fetch_judge(options)
        return
    with progress(None, options.name) as bar:
        cache = options.cache or default_cache()
        corpus = prepare(options.name, cache, on_progress=bar.prepared)
        bar.reach(0, None, "verifying")
        verify(corpus)
    sizes = {name: end - begin for name, (begin, end) in corpus.splits.items()}
    record = asdict(corpus) | {"path": str(corpus.path), "splits": sizes}
    record["beginning"] = corpus.read(next(iter(corpus.splits)), 80).decode(errors="replace")
    if options.json:
        print(json.dumps(record))
        return
    table = Table(show_header=False)
    for key, value in record.items():
        if value not in (None, {}):
            table.add_row(key, _shown(value))
    Console().print(table)


def fetch_judge(options: Options) -> None:
    """Download a pretrained judge into the cache."""
    from dsl.data import default_cache
    from dsl.evaluation import digest, fetch

    folder = fetch(options.name, options.cache or default_cache())
    about = {"name": options.name, "what": PACKAGED[options.name][2], "path": str(folder)}
    about["digest"] = digest(folder)
    print(json.dumps(about) if options.json else "\n".join(f"{k}: {v}" for k, v in about.items()))


def _shown(value: Any) -> str:
    """Format a value for the table: thousands separators, mean ± error, nested dictionaries."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(inner)}" for name, inner in value.items())
    if isinstance(value, list):
        mean, error = value
        return f"{mean:.4f} ± {error:.4f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
