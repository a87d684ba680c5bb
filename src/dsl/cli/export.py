"""`dsl export`: write a model for the Auto classes of transformers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from dsl.cli.options import parse


@dataclass(frozen=True)
class ExportOptions:
    """Write a directory that transformers' AutoModelForMaskedLM and AutoTokenizer load.

    The id of [MASK] is the one after the last token. Loading needs this package installed, and
    either `import dsl.integrations.transformers` or trust_remote_code=True.
    """

    model: tyro.conf.Positional[str]
    """A checkpoint directory, or the name of a model."""
    out: tyro.conf.Positional[Path]
    """Where it is written; the directory must be new or empty."""


def main(arguments: Sequence[str]) -> None:
    """Load, wrap, write."""
    options = parse(ExportOptions, "export", arguments)
    from dsl.conversion import require_new

    require_new(options.out)  # before transformers, which takes seconds to import
    from dsl.integrations.transformers import export
    from dsl.loading import load

    export(load(options.model), options.out)
    print(f"{options.out}: AutoModelForMaskedLM.from_pretrained({str(options.out)!r})")
