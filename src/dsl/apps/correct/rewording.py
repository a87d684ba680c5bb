"""Doubtful stretches that another length explains better become edits of several characters."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from dsl.apps.correct.deciding import Asked
from dsl.apps.correct.lengths import REACH, LengthErrors, Stretch, Weighed, explanations, weigh
from dsl.apps.correct.result import Edit
from dsl.apps.correct.view import View

SPOT = 0.2
"""The doubt from which on a place may hide a change of length."""
LONGEST = 12
"""Places in a stretch; a longer one is too damaged to be explained by a single change."""


def rewordings(view: View, asked: Sequence[Asked], errors: LengthErrors) -> list[Edit]:
    """Return the changes of length that are likelier than none, at most one in each stretch."""
    spots = [one.place for one in asked if one.doubt > SPOT]
    stretches = [
        _stretch(view, part, errors) for part in clusters(spots, 2 * REACH) if len(part) <= LONGEST
    ]
    weighed = weigh(view.model.denoiser, view.hints, stretches)
    made = (_reexplained(view, *one) for one in zip(stretches, weighed, strict=True))
    return [edit for edit in made if edit is not None]


def _stretch(view: View, cluster: range, errors: LengthErrors) -> Stretch:
    block = range(max(0, cluster.start - REACH), min(len(view.tokens), cluster.stop + REACH))
    found = explanations(cluster, view.tokens, view.fixed, view.spelling, errors)
    return Stretch(block, list(found))


def clusters(places: Sequence[int], gap: int) -> Iterator[range]:
    """Join places that are nearer than a gap into stretches."""
    members: list[int] = []
    for place in places:
        if members and place - members[-1] > gap:
            yield range(members[0], members[-1] + 1)
            members = []
        members.append(place)
    if members:
        yield range(members[0], members[-1] + 1)


def _reexplained(view: View, stretch: Stretch, weighed: Sequence[Weighed]) -> Edit | None:
    tokens, fixed, block = view.tokens, view.fixed, stretch.block
    best = max(weighed, key=lambda one: one.probability)
    if best is weighed[0]:
        return None  # nothing happened
    old = tokens[block.start : block.stop]
    head = _alike(old, best.tokens)
    tail = _alike(old[head:][::-1], best.tokens[head:][::-1])
    inner = range(block.start + head, block.stop - tail)
    if any(fixed[place] for place in inner):
        return None  # what never changes stands in the way
    return _edit(view, inner, best, head, tail, _lengths(weighed))


def _alike(one: Sequence[int], other: Sequence[int]) -> int:
    """Count the tokens that both begin with."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _lengths(weighed: Sequence[Weighed]) -> tuple[tuple[int, float], ...]:
    """Return the posterior of by how much the text is longer."""
    found: dict[int, float] = {}
    for one in weighed:
        longer = one.explanation.longer
        found[longer] = found.get(longer, 0.0) + one.probability
    return tuple(sorted(found.items()))


def _edit(
    view: View, inner: range, best: Weighed, head: int, tail: int,
    lengths: tuple[tuple[int, float], ...],
) -> Edit:  # fmt: skip
    written = slice(head, len(best.tokens) - tail)
    old = [view.symbol(place) for place in inner]
    near = old[0].text if old else ""
    new = "".join(view.spelling.written(token, near) for token in best.tokens[written])
    sure = best.probability * math.exp(math.fsum(best.log_p[written]))
    first = view.shown[inner.start].symbol if inner.start < len(view.shown) else None
    place = len(view.reading.symbols) if first is None else first
    return Edit(place, len(inner), "".join(s.text or "_" for s in old), new, sure, lengths=lengths)
