"""`dsl export`: export a model for the Auto classes of transformers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from dsl.cli.options import parse


@dataclass(frozen=True)
class Options:
    """Export a directory that transformers' AutoModelForMaskedLM and AutoTokenizer can load.

    The id of [MASK] is the one after the last token. Loading requires this package, and either
    `import dsl.integrations.transformers` or trust_remote_code=True.

    Example: dsl export text8-tiny exported
    """

    model: tyro.conf.Positional[str]
    """Checkpoint directory, or model name."""
    out: tyro.conf.Positional[Path]
    """Output directory; must be new or empty."""


def main(arguments: Sequence[str]) -> None:
    """Run `dsl export`."""
    options = parse(Options, "export", arguments)
    from dsl.checkpoints import require_new

    require_new(options.out)  # before transformers, which takes seconds to import
    from dsl.checkpoints import load
    from dsl.integrations.transformers import export

    export(load(options.model), options.out)
    print(f"{options.out}: AutoModelForMaskedLM.from_pretrained({str(options.out)!r})")
