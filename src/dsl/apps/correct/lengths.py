"""Changes of length: characters that were lost, added, split, merged or swapped.

Several explanations of a doubtful stretch are compared. Each has a prior, the rate of its error,
and the evidence of the reading under it. Bayes' rule gives the posterior over explanations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import torch
from jaxtyping import Float
from torch import Tensor

from dsl._util.validate import probability
from dsl.apps.correct.deciding import Asked
from dsl.apps.correct.reading import Edit
from dsl.apps.correct.spelling import Spelling
from dsl.apps.correct.view import View
from dsl.conditioning import Evidence, Hint, Known, Unknown, given, log_likelihood
from dsl.core import MASK, Continuous, Endpoints, Mask, Tokens, at_once
from dsl.likelihoods import require_logits


@dataclass(frozen=True, eq=False)
class Marginal:
    """The evidence of a block in every sequence, and a likely text of it."""

    log_evidence: Float[Tensor, "b"]
    """ln P(reading of the block | reading around it)."""
    tokens: Tokens
    """The most likely token at every step; MASK outside the blocks."""
    log_p: Float[Tensor, "b l"]
    """The log-probability of each of these tokens when it was chosen; 0 outside."""


@torch.no_grad()
def marginal(
    denoiser: Continuous, rows: Sequence[Sequence[Hint]], blocks: Sequence[range], *, steps: int
) -> Marginal:
    """Compute the evidence of a block of each sequence by the chain rule.

    Args:
        denoiser: The model.
        rows: Hints at every place; all sequences have one length.
        blocks: The block of each sequence.
        steps: Steps per block. With one step per place the chain rule is exact; with fewer, the
            places of one step are treated as independent.
    """
    size = max(1, at_once(denoiser, len(rows[0])) // 2)
    parts = [
        _walk(denoiser, rows[begin : begin + size], blocks[begin : begin + size], steps)
        for begin in range(0, len(rows), size)
    ]
    return Marginal(
        torch.cat([part.log_evidence for part in parts]),
        torch.cat([part.tokens for part in parts]),
        torch.cat([part.log_p for part in parts]),
    )


def _walk(
    denoiser: Continuous, rows: Sequence[Sequence[Hint]], blocks: Sequence[range], steps: int
) -> Marginal:
    read = Evidence.of(rows, denoiser)
    around = Evidence.of(
        [
            [Unknown() if i in block else hint for i, hint in enumerate(row)]
            for row, block in zip(rows, blocks, strict=True)
        ],
        denoiser,
    )
    within = torch.zeros_like(read.pinned, dtype=torch.bool)
    said = torch.zeros(*within.shape, denoiser.vocab_size, dtype=torch.float64)
    codebook = denoiser.codebook.detach().double()
    for row, block in enumerate(blocks):
        within[row, list(block)] = True
        for i in block:
            said[row, i] = log_likelihood([rows[row][i]], codebook)
    alike = _alike(rows, blocks)
    known = torch.full_like(read.pinned, MASK)
    log_p = torch.zeros(known.shape, dtype=torch.float64)
    total = torch.zeros(len(known), dtype=torch.float64)
    for step in range(steps):
        here = within & (_turn(blocks, known.shape[1]) % steps == step)
        if not here.any():
            continue
        posterior = _log_posterior(denoiser, read, known, here)
        same = alike if step == 0 else range(len(rows))
        prior = _log_prior(denoiser, around, known, here, same)
        chosen = posterior.argmax(dim=-1, keepdim=True)
        gain = prior.gather(1, chosen) + said[here].gather(1, chosen) - posterior.gather(1, chosen)
        total = total.index_add(0, here.nonzero()[:, 0], gain.squeeze(1))
        log_p[here] = posterior.gather(1, chosen).squeeze(1)
        known[here] = chosen.squeeze(1)
    return Marginal(total, known, log_p)


def _alike(rows: Sequence[Sequence[Hint]], blocks: Sequence[range]) -> list[int]:
    """Return, for every sequence, the first one that has the same hints outside its block."""
    keys = [
        (block, tuple(id(hint) for i, hint in enumerate(row) if i not in block))
        for row, block in zip(rows, blocks, strict=True)
    ]
    first: dict[object, int] = {}
    return [first.setdefault(key, place) for place, key in enumerate(keys)]


def _log_prior(
    denoiser: Continuous, around: Evidence, known: Tokens, here: Mask, alike: Sequence[int]
) -> Float[Tensor, "n v"]:
    """Return the prior of the chosen places, computed once for sequences that are alike."""
    different = sorted(set(alike))
    asked = here[different]
    rows = _log_posterior(denoiser, around.take(different), known[different], asked)
    size = [int(count) for count in asked.sum(dim=1)]
    parts = dict(zip(different, rows.split(size), strict=True))
    return torch.cat([parts[place] for place in alike])


def _turn(blocks: Sequence[range], length: int) -> Tensor:
    """Number the places of every block from its beginning."""
    begins = torch.tensor([block.start for block in blocks]).unsqueeze(1)
    return torch.arange(length).unsqueeze(0) - begins


def _log_posterior(
    denoiser: Continuous, evidence: Evidence, known: Tokens, here: Mask
) -> Float[Tensor, "n v"]:
    pinned = torch.where(known != MASK, known, evidence.pinned)
    unknown = Endpoints(torch.full_like(pinned, MASK))
    rows = given(denoiser, replace(evidence, pinned=pinned))(unknown, at=here)
    require_logits(rows)
    return rows.double().log_softmax(dim=-1).cpu()


REACH = 3
"""Places on both sides of a doubtful stretch that belong to its block."""
AROUND = 20
"""Context on both sides of a block, in characters."""
STEPS = 2
"""Steps per block."""
BLOCK = 12
"""Usual size of a block; rows have room for it and its context."""
FINALISTS = 3
"""Explanations that are compared in full, chosen by a comparison in one step."""

PAIRS = MappingProxyType({"m": "rn", "d": "cl", "h": "li", "w": "vv", "u": "ii", "n": "ri"})
"""Letters that recognisers confuse with a pair of letters."""


@dataclass(frozen=True)
class LengthErrors:
    """How often a reader changes the length of a text, per character."""

    lost: float = 2e-3
    """A written character is missing from the reading."""
    added: float = 2e-3
    """A random character is read that was not written."""
    split: float = 2e-3
    """A character that looks like two is read as two."""
    merged: float = 2e-3
    """Two characters that look like one are read as one."""
    swapped: float = 5e-4
    """Two neighbouring characters are read in the wrong order."""
    pairs: Mapping[str, str] = field(default_factory=lambda: PAIRS)

    def __post_init__(self) -> None:
        for name in ("lost", "added", "split", "merged", "swapped"):
            probability(name, getattr(self, name))


@dataclass(frozen=True)
class Explanation:
    """Some places of the reading stand for others, perhaps more or fewer."""

    place: int
    size: int
    hints: Sequence[Hint]
    """Hints about the places that were written there."""
    log_prior: float
    """The log of the error rate, and of the probability of the characters that were added."""

    @property
    def longer(self) -> int:
        """The change of length, in characters."""
        return len(self.hints) - self.size


@dataclass(frozen=True)
class Weighed:
    """An explanation with its posterior probability and the most likely text under it."""

    explanation: Explanation
    probability: float
    tokens: Sequence[int]
    """The text of the block under this explanation."""
    log_p: Sequence[float]
    """The log-probability of each of its characters, given the explanation."""


def explanations(
    cluster: range, tokens: Sequence[int], fixed: Sequence[bool], spelling: Spelling,
    errors: LengthErrors,
) -> Iterator[Explanation]:  # fmt: skip
    """Yield the explanations of a stretch: no error, or one change of length or order.

    Args:
        cluster: The doubtful places.
        tokens: All tokens as read.
        fixed: Which places never change.
        spelling: The alphabet.
        errors: The error rates.
    """
    yield Explanation(cluster.start, 0, (), 0.0)
    random_one = -math.log(len(spelling.letters))
    pairs = _pairs(errors.pairs, spelling)
    for place in cluster:
        before = errors.lost > 0 and not (fixed[place] and place and fixed[place - 1])
        if before:
            yield Explanation(place, 0, (Unknown(),), math.log(errors.lost))
        if fixed[place]:
            continue
        if errors.added > 0:
            yield Explanation(place, 1, (), math.log(errors.added) + random_one)
        read = tuple(tokens[place : place + 2])
        free = len(read) == 2 and not fixed[place + 1]
        for one, two in pairs:
            if errors.merged > 0 and tokens[place] == one:
                yield Explanation(place, 1, tuple(map(Known, two)), math.log(errors.merged))
            if errors.split > 0 and free and read == two:
                yield Explanation(place, 2, (Known(one),), math.log(errors.split))
        if errors.swapped > 0 and free and len(set(read)) == 2:
            hints = (Known(read[1]), Known(read[0]))
            yield Explanation(place, 2, hints, math.log(errors.swapped))


def _pairs(pairs: Mapping[str, str], spelling: Spelling) -> list[tuple[int, tuple[int, int]]]:
    found = []
    for one, two in pairs.items():
        tokens = [spelling.tokens.get(letter) for letter in (one, *two)]
        if len(tokens) == 3 and None not in tokens:
            found.append((tokens[0], (tokens[1], tokens[2])))
    return found  # type: ignore[return-value]


@dataclass(frozen=True)
class Stretch:
    """A block of a text, and the explanations of it."""

    block: range
    found: Sequence[Explanation]
    """The first is that there was no error."""


def weigh(
    denoiser: Continuous,
    hints: Sequence[Hint],
    stretches: Sequence[Stretch],
    *,
    around: int = AROUND,
    steps: int | None = STEPS,
) -> list[list[Weighed]]:
    """Return the posterior over the explanations of every stretch of a text.

    It is exact if a block is the whole text and every place has its own step. Otherwise the text
    around a block is taken as given, although explanations move it nearer or farther. With a
    number of steps, a comparison in one step first selects a few explanations (the first is always
    among them); the others get probability 0.

    Args:
        denoiser: The model.
        hints: Hints at every place of the text.
        stretches: The stretches to explain.
        around: Context on both sides of a block, in characters.
        steps: Steps per block; None for one step per place, which is exact.
    """
    if steps is not None:
        rough = _weighed(denoiser, hints, stretches, around, 1)
        stretches = [_finalists(*pair) for pair in zip(stretches, rough, strict=True)]
    return _weighed(denoiser, hints, stretches, around, steps)


def _finalists(stretch: Stretch, rough: Sequence[Weighed]) -> Stretch:
    best = sorted(rough[1:], key=lambda one: -one.probability)[: FINALISTS - 1]
    return Stretch(stretch.block, [stretch.found[0], *(one.explanation for one in best)])


def _weighed(
    denoiser: Continuous, hints: Sequence[Hint], stretches: Sequence[Stretch], around: int,
    steps: int | None,
) -> list[list[Weighed]]:  # fmt: skip
    """Compute the evidence of all explanations of all stretches, in batches of one length."""
    asked = [(stretch.block, e) for stretch in stretches for e in stretch.found]
    begins = [max(0, block.start - around) for block, _ in asked]
    rows = [_row(hints, *one, around) for one in asked]
    blocks = [
        range(block.start - begin, block.stop - begin + e.longer)
        for (block, e), begin in zip(asked, begins, strict=True)
    ]
    found: list[tuple[float, list[int], list[float]]] = [(0.0, [], [])] * len(asked)
    for size in {len(row) for row in rows}:
        same = [i for i, row in enumerate(rows) if len(row) == size]
        most = steps or max(len(blocks[i]) for i in same)
        part = marginal(denoiser, [rows[i] for i in same], [blocks[i] for i in same], steps=most)
        for row, i in enumerate(same):
            places = list(blocks[i])
            found[i] = (
                asked[i][1].log_prior + float(part.log_evidence[row]),
                part.tokens[row, places].tolist(),
                part.log_p[row, places].tolist(),
            )
    rest = iter(found)
    return [_posterior(stretch.found, [next(rest) for _ in stretch.found]) for stretch in stretches]


def _row(hints: Sequence[Hint], block: range, e: Explanation, around: int) -> list[Hint]:
    """Return the hints of a block and its context under an explanation.

    Rows have one length, where the text is long enough, so that they can be batched.
    """
    begin = max(0, block.start - around)
    end = min(len(hints), begin + 2 * around + BLOCK)
    row = [*hints[begin : e.place], *e.hints, *hints[e.place + e.size :]]
    return row[: max(end, block.stop + REACH) - begin] if end < len(hints) else row


def _posterior(
    explanations: Sequence[Explanation], found: Sequence[tuple[float, list[int], list[float]]]
) -> list[Weighed]:
    scores = torch.tensor([score for score, _, _ in found], dtype=torch.float64)
    p = scores.softmax(dim=0).tolist()
    return [
        Weighed(e, share, tokens, log_p)
        for e, share, (_, tokens, log_p) in zip(explanations, p, found, strict=True)
    ]


SPOT = 0.2
"""Minimum doubt of a place that may hide a change of length."""
LONGEST = 12
"""Maximum places in a stretch; a single change rarely explains a longer one."""


def rewordings(view: View, asked: Sequence[Asked], errors: LengthErrors) -> list[Edit]:
    """Return the changes of length that are more likely than no change, one per stretch at most."""
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
    """Join places that are at most `gap` apart into stretches."""
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
        return None  # no error
    old = tokens[block.start : block.stop]
    head = _common(old, best.tokens)
    tail = _common(old[head:][::-1], best.tokens[head:][::-1])
    inner = range(block.start + head, block.stop - tail)
    if any(fixed[place] for place in inner):
        return None  # a fixed character is in the way
    return _length_edit(view, inner, best, head, tail, _longer(weighed))


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the length of the common prefix."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _longer(weighed: Sequence[Weighed]) -> tuple[tuple[int, float], ...]:
    """Return the posterior over the change of length."""
    found: dict[int, float] = {}
    for one in weighed:
        longer = one.explanation.longer
        found[longer] = found.get(longer, 0.0) + one.probability
    return tuple(sorted(found.items()))


def _length_edit(
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
