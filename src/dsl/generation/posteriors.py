"""The posterior of every token of a text, given its other tokens or hints."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from dsl._util.defaults import DEFAULT_MODEL
from dsl._util.validate import text as require_text
from dsl._util.validate import whole_number
from dsl.checkpoints.loading import Model, loaded
from dsl.core.denoiser import Endpoints, require_logits
from dsl.core.types import MASK
from dsl.generation.options import InfillOptions, SampleOptions
from dsl.generation.prompts import count_characters
from dsl.generation.request import completion, infilling, model_length

SHOWN = 3
"""Candidates of a position in the printed table."""


@dataclass(frozen=True, eq=False)
class Posterior:
    """The probability of every token at every position."""

    model: Model
    p: Float[Tensor, "l v"]

    def top(self, k: int = SHOWN) -> list[list[tuple[str, float]]]:
        """Return the k most probable tokens of every position, as text, with probabilities."""
        most = min(whole_number("k", k, least=1), self.p.shape[1])
        values, tokens = (t[:, :most].tolist() for t in self.p.sort(descending=True, stable=True))
        names = self.model.pieces if self.model.tokenizer else list(map(str, range(len(self.p[0]))))
        return [
            [(names[token], value) for token, value in zip(*row, strict=True)]
            for row in zip(tokens, values, strict=True)
        ]

    def __str__(self) -> str:
        """Return a table: a row per position, with its best token and others above 0.001."""
        rows = [
            [f"{text!r} {p:.3f}" for i, (text, p) in enumerate(row) if i == 0 or p > 0.001]
            for row in self.top()
        ]
        width = max(len(cell) for row in rows for cell in row)
        place = len(str(len(rows) - 1))
        return "\n".join(
            f"{i:{place}}  {'  '.join(cell.ljust(width) for cell in row)}".rstrip()
            for i, row in enumerate(rows)
        )


def posterior(
    text: str = "", model: str | Path | Model = DEFAULT_MODEL, *, hints: Any = None
) -> Posterior:
    """Return the posterior of every token, from one call of the network.

    >>> print(dsl.posterior("AB[2]EFG", "oracle:cyclic-7").top(1)[2])
    [('C', 1.0)]

    Each position has its own distribution; `dsl.infill` draws gaps jointly. A known token has
    probability 1.

    Args:
        text: A text with gaps, such as "the [1] sat"; empty if there are hints.
        model: A model, or its name.
        hints: A hint for each position, in place of a text, as for `dsl.generate`.
    """
    require_text("text", text)
    if (hints is None) == (not text):
        raise ValueError("give a text with gaps or hints, and not both")
    if hints is None:
        found = loaded(model, length=count_characters(text))
        request = infilling(found, [text], InfillOptions())
    else:
        options = SampleOptions(sampler="roar")
        found = loaded(model, length=model_length(options, hints))
        request = completion(found, options, hints=hints)
    batch = next(request.batches())
    tokens = batch.start.tokens
    logits = batch.denoiser(Endpoints(tokens))[0]
    require_logits(logits)
    p = logits.softmax(dim=-1)
    pinned = torch.nn.functional.one_hot(tokens[0].clamp(min=0), p.shape[1]).to(p)
    return Posterior(found, torch.where((tokens[0] != MASK)[:, None], pinned, p))
