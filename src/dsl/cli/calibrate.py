"""`dsl calibrate`: whether a model's confidence can be believed, by level of corruption."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import tyro

from dsl.arguments import LENGTHS, SEEDS, within
from dsl.cli.options import parse


@dataclass(frozen=True)
class CalibrateOptions:
    """Measure calibration under teacher forcing: ECE, reliability, risk-coverage, temperature.

    Half of the blocks fit a temperature, the other half are judged at T = 1 and at that one.
    """

    model: tyro.conf.Positional[str]
    """A bundled model such as text8-tiny, a checkpoint directory, a hub id, or an oracle."""
    corpus: tyro.conf.Positional[str]
    """A text file, a .jsonl file with a "text" in every line, or a corpus that `dsl data` knows."""
    split: str | None = None
    """Take blocks at equal distances from this split: train, validation or test. If it is not
    given, that is test for a named corpus, while a file is read from its beginning."""
    snr: tuple[float, ...] = ()
    """SNRs to corrupt to; a ladder from masked to nearly clean if not given."""
    limit: int = 128
    """Use at most so many blocks."""
    length: int | None = None
    """Tokens in a block; the model's own length if not given."""
    bins: int = 15
    """Bins of confidence."""
    seed: int = 0
    """Where the random numbers start."""
    json: bool = False
    """Print JSON, with reliability and risk-coverage curves, instead of a table."""
    device: str = "cpu"
    """Where the network runs, such as cuda:0."""
    cache: Path | None = None
    """Where corpora are kept."""

    def check(self) -> None:
        """Refuse values that no run can have."""
        within(self, limit=(4, 10**9), bins=(1, 10**4), snr=(0, 10**6))
        within(self, length=LENGTHS, seed=SEEDS)


def main(arguments: Sequence[str]) -> None:
    """Load, cut, corrupt, judge, print."""
    options = parse(CalibrateOptions, "calibrate", arguments)
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from dsl.cli.progress import progress
    from dsl.data.cache import default_cache
    from dsl.evaluation.calibration import calibrate, levels
    from dsl.loading import load
    from dsl.scoring.blocks import read

    model = load(options.model, length=options.length, device=options.device)
    length = model.length if options.length is None else options.length
    model.require_length(length)
    number = len(levels(model, options.snr))
    cache = options.cache or default_cache()
    tokens, _ = read(model, options.corpus, options.split, length, options.limit, cache)
    with progress(number, "calibrating") as bar:
        found = calibrate(
            model,
            tokens,
            snrs=options.snr,
            seed=options.seed,
            bins=options.bins,
            on_level=lambda _: bar.advance(1, tokens.numel()),
        )
    if options.json:
        about = {"model": model.name, "corpus": options.corpus, "blocks": len(tokens)}
        about |= {"length": length, "seed": options.seed, "bins": options.bins}
        levels_found = [asdict(one) | {"risk_area": one.risk_coverage.area} for one in found]
        print(json.dumps(about | {"levels": levels_found}, allow_nan=False))
        return
    columns = ("SNR", "n", "accuracy", "confidence", "ECE", "T", "ECE at T", "risk area")
    table = Table(*columns, box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for one in found:
        table.add_row(
            str(one.level) if isinstance(one.level, str) else f"{one.level:g}",
            f"{one.positions:,}",
            f"{one.accuracy:.4f}",
            f"{one.confidence:.4f}",
            f"{one.ece:.4f} ± {one.ece_stderr:.4f}",
            f"{one.temperature:.2f}",
            f"{one.ece_after:.4f}",
            f"{one.risk_coverage.area:.4f}",
        )
    Console().print(table)
