"""`dsl calibrate`: measure how far a model's confidence can be trusted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from dsl._util.validate import LENGTHS, SEEDS, within
from dsl.cli.options import CorpusOptions, parse


@dataclass(frozen=True, kw_only=True)
class Options(CorpusOptions):
    """Measure calibration on corrupted held-out text: ECE, reliability, risk-coverage, temperature.

    One half of the blocks fits a temperature; the other half is evaluated at T = 1 and at that T.

    Example: dsl calibrate text8-tiny text8-prefix --split test
    """

    split: str | None = None
    """Take evenly spaced blocks from this split: train, validation or test. Default: test for a
    named corpus; a file is read from its beginning."""
    snr: tuple[float, ...] = ()
    """SNRs to corrupt to. Default: a ladder from masked to nearly clean."""
    limit: int = 128
    """Maximum number of blocks."""
    length: int | None = None
    """Tokens per block. Default: the model's length."""
    bins: int = 15
    """Number of confidence bins."""
    json: bool = False
    """Print JSON, with reliability and risk-coverage curves, instead of a table."""

    def check(self) -> None:
        """Reject invalid values."""
        within(self, limit=(4, 10**9), bins=(1, 10**4), snr=(0, 10**6))
        within(self, length=LENGTHS, seed=SEEDS)


def main(arguments: Sequence[str]) -> None:
    """Run `dsl calibrate`."""
    options = parse(Options, "calibrate", arguments)
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from dsl.checkpoints import load
    from dsl.cli.progress import progress
    from dsl.data import default_cache
    from dsl.evaluation import calibrate, levels, read

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
