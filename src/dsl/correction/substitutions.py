"""A character for a character: the posterior of every doubtful place, and the edits it suggests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.correction.deciding import Mode, decide
from dsl.correction.result import Edit
from dsl.correction.view import View
from dsl.correction.windows import Window, windows
from dsl.denoiser import at_once
from dsl.evidence import Evidence
from dsl.hints import Known
from dsl.streams import stream

ALTERNATIVES = 4
"""Characters that are named beside the chosen one."""
NAMED = 1e-3
"""The least probability of one that is named."""


@dataclass(frozen=True, eq=False)
class Asked:
    """A doubtful place of a view, and what the model says of it."""

    place: int
    token: int
    """The one that was chosen."""
    changed: bool
    doubt: float
    """The probability that something else was written than was read."""
    p: Float[Tensor, "v"]


def ask(view: View, *, mode: Mode, rounds: int, margin: int, seed: int) -> Iterator[Asked]:
    """Ask about every doubtful place, window by window.

    Args:
        view: The text.
        mode: How places are decided.
        rounds: How many times the network is asked about a window.
        margin: Characters that it sees around each at least.
        seed: Where random numbers start.
    """
    doubtful = [i for i, hint in enumerate(view.hints) if not isinstance(hint, Known)]
    length = view.model.length
    whole = list(windows(doubtful, len(view.shown), length, margin))
    size = at_once(view.model.denoiser, length)
    for begin in range(0, len(whole), size):
        yield from _batch(view, whole[begin : begin + size], mode, rounds, stream(seed, begin))


@torch.no_grad()
def _batch(
    view: View, part: Sequence[Window], mode: Mode, rounds: int, generator: torch.Generator
) -> Iterator[Asked]:
    rows = [view.hints[window.begin : window.end] for window in part]
    evidence = Evidence.of(rows, view.model.denoiser)
    asked = torch.zeros_like(evidence.pinned, dtype=torch.bool)
    for row, window in enumerate(part):
        asked[row, [place - window.begin for place in window.asked]] = True
    decided = decide(
        view.model.denoiser, evidence, asked, mode=mode, rounds=rounds, generator=generator
    )
    places = [place for window in part for place in window.asked]
    for place, token, p in zip(places, decided.tokens.tolist(), decided.p.cpu(), strict=True):
        read, gap = view.shown[place].token, view.symbol(place).is_gap
        yield Asked(place, token, gap or token != read, 1.0 if gap else 1 - float(p[read]), p)


def edit(view: View, one: Asked) -> Edit:
    """Write what was found at a place as an edit of the text."""
    old = view.symbol(one.place).text
    best = one.p.topk(min(ALTERNATIVES + 1, len(one.p)))
    named = [
        (view.spelling.written(other, old), share)
        for share, other in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        if other != one.token and share >= NAMED
    ]
    new = view.spelling.written(one.token, old)
    place, p = view.shown[one.place].symbol, float(one.p[one.token])
    return Edit(place, 1, old, new, p, tuple(named[:ALTERNATIVES]))
