"""How a file of samples was made: enough to make it again, and to tell two jobs apart."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from dsl import files
from dsl.loading import Model
from dsl.models.folder import WEIGHTS
from dsl.sampling.sampler import Sampler
from dsl.sampling.specification import to_data
from dsl.version import __version__


def about(
    model: Model,
    sampler: Sampler,
    *,
    length: int | None,
    seed: int,
    given: str,
    command: Sequence[str],
) -> dict[str, Any]:
    """Describe a job.

    Args:
        model: What draws.
        sampler: The path it is drawn along.
        length: Tokens in a sequence; None if they differ.
        seed: With a sequence's index it determines the text.
        given: What was known of the sequences.
        command: The words of the command line.
    """
    return {
        "dsl": __version__,
        "command": shlex.join(command),
        "model": model.name,
        "weights": None if model.weights is None else files.digest(model.weights / WEIGHTS),
        "sampler": to_data(sampler),
        "length": length,
        "seed": seed,
        "given": given,
    }
