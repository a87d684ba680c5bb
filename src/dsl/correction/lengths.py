"""Characters that were lost, added, split or merged: explanations of another length, weighed.

What was read is explained in several ways. Each explanation has a prior, the rate of its error, and
the evidence of what was read under it; the posterior over explanations follows by Bayes' rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import torch

from dsl.arguments import probability
from dsl.correction.marginal import marginal
from dsl.correction.spelling import Spelling
from dsl.denoiser import Continuous
from dsl.hints import Hint, Known, Unknown

REACH = 3
"""Places on both sides of a doubtful stretch whose evidence is weighed with it."""
AROUND = 28
"""Characters that are seen on both sides of those."""
STEPS = 4
"""Steps in which the evidence of a stretch is computed."""

PAIRS = MappingProxyType({"m": "rn", "d": "cl", "h": "li", "w": "vv", "u": "ii", "n": "ri"})
"""Letters that recognisers take for two, and which two."""


@dataclass(frozen=True)
class LengthErrors:
    """How often a reader changes the length of a text, per character."""

    lost: float = 2e-3
    """A character that was written is not read."""
    added: float = 2e-3
    """A character is read that was not written; which one, is as good as random."""
    split: float = 2e-3
    """One that looks like two is read as two."""
    merged: float = 2e-3
    """Two that look like one are read as one."""
    swapped: float = 5e-4
    """Two neighbours are read in the wrong order."""
    pairs: Mapping[str, str] = field(default_factory=lambda: PAIRS)

    def __post_init__(self) -> None:
        for name in ("lost", "added", "split", "merged", "swapped"):
            probability(name, getattr(self, name))


@dataclass(frozen=True)
class Explanation:
    """Some places of a text are explained by others, perhaps more or fewer."""

    place: int
    size: int
    hints: Sequence[Hint]
    """What is known of the places that were really written there."""
    log_prior: float
    """The log of its rate, times the probability of what those hints leave out."""

    @property
    def longer(self) -> int:
        """By how many characters the text becomes longer."""
        return len(self.hints) - self.size


@dataclass(frozen=True)
class Weighed:
    """An explanation with its posterior probability and the likeliest text under it."""

    explanation: Explanation
    probability: float
    tokens: Sequence[int]
    """The text of the block under this explanation."""
    log_p: Sequence[float]
    """ln of the probability of each of its characters, if the explanation is right."""


def explanations(
    cluster: range, tokens: Sequence[int], fixed: Sequence[bool], spelling: Spelling,
    errors: LengthErrors,
) -> Iterator[Explanation]:  # fmt: skip
    """List what may have happened within a stretch: nothing, or one change of length or order.

    Args:
        cluster: The places where the text is doubtful.
        tokens: What was read, all of it.
        fixed: The places that never change.
        spelling: The alphabet.
        errors: How often what happens.
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


def weigh(
    denoiser: Continuous,
    hints: Sequence[Hint],
    found: Sequence[Explanation],
    block: range,
    *,
    around: int = AROUND,
    steps: int | None = STEPS,
) -> list[Weighed]:
    """Return the posterior over explanations of one stretch of a text.

    It is exact if the block is the whole text. Otherwise what is around it counts as given, and
    that it stands nearer or farther apart under some explanations as no evidence.

    Args:
        denoiser: Whose distribution it is.
        hints: What was read at every place of the text.
        found: The explanations, all within the block.
        block: The places whose evidence differs, or may.
        around: Characters on both sides of it that are seen.
        steps: In how many steps the evidence is computed; None for as many as places, which is
            exact.
    """
    begin, end = max(0, block.start - around), min(len(hints), block.stop + around)
    rows = [[*hints[begin : e.place], *e.hints, *hints[e.place + e.size : end]] for e in found]
    blocks = [range(block.start - begin, block.stop - begin + e.longer) for e in found]
    score = torch.zeros(len(found), dtype=torch.float64)
    texts: list[list[int]] = [[] for _ in found]
    sure: list[list[float]] = [[] for _ in found]
    for size in {len(row) for row in rows}:
        same = [i for i, row in enumerate(rows) if len(row) == size]
        most = steps or max(len(blocks[i]) for i in same)
        part = marginal(denoiser, [rows[i] for i in same], [blocks[i] for i in same], steps=most)
        for row, i in enumerate(same):
            score[i] = found[i].log_prior + part.log_evidence[row]
            texts[i] = part.tokens[row, list(blocks[i])].tolist()
            sure[i] = part.log_p[row, list(blocks[i])].tolist()
    p = score.softmax(dim=0).tolist()
    return [Weighed(*row) for row in zip(found, p, texts, sure, strict=True)]
