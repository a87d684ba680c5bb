"""Substitutions: the posterior at every doubtful place, and the edits it suggests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dsl.apps.correct.reading import Edit
from dsl.apps.correct.view import View, Window, windows
from dsl.conditioning import Evidence, Wrapper, given
from dsl.core import MASK, Denoiser, Endpoints, Mask, Noisy, Randomness, at_once, stream
from dsl.likelihoods import require_logits
from dsl.samplers import Confident, Draw, State, last, mdlm

Mode = Literal["marginal", "surest", "sample"]
ROUNDS = 8
"""Sampler steps per window, unless the mode is marginal."""


@dataclass(frozen=True, eq=False)
class Decided:
    """Decisions at the requested places, in order."""

    tokens: Int[Tensor, "n"]
    p: Float[Tensor, "n v"]
    """The posterior of each place just before its decision."""


@dataclass(frozen=True, eq=False)
class Recorder(Wrapper):
    """A denoiser given evidence that records the posterior of every row it returns.

    Samplers decide the requested places only. The denoiser reads the others from the evidence.
    """

    evidence: Evidence
    asked: Mask
    p: Float[Tensor, "b l v"]
    """The latest posterior of each place, overwritten by every call."""

    def __call__(self, z: Noisy | Endpoints, /, *, at: Mask | None = None) -> Float[Tensor, "n v"]:
        """Return the logits of the chosen rows."""
        assert isinstance(z, Endpoints) and at is not None  # the samplers below are masked ones
        pinned = torch.where(self.asked, z.tokens, self.evidence.pinned)
        evidence = replace(self.evidence, pinned=pinned)
        rows = given(self.denoiser, evidence)(Endpoints(pinned), at=at)
        require_logits(rows)
        self.p[at] = rows.double().softmax(dim=-1)
        return rows


def decide(
    denoiser: Denoiser,
    evidence: Evidence,
    asked: Mask,
    *,
    mode: Mode = "marginal",
    rounds: int = ROUNDS,
    generator: Randomness = None,
) -> Decided:
    """Decide the requested places, given the evidence at all places.

    Args:
        denoiser: The model.
        evidence: The evidence of every sequence of the batch.
        asked: The places to decide.
        mode: `marginal` decides all places from one posterior. `surest` is the sampler `confident`
            at temperature 0. `sample` is the sampler `mdlm`; its draw is not exact, because the
            places of one step are drawn independently. More rounds bring it closer.
        rounds: Sampler steps, unless the mode is marginal.
        generator: The source of randomness.
    """
    p = torch.zeros(*asked.shape, denoiser.vocab_size, dtype=torch.float64, device=asked.device)
    recorder = Recorder(denoiser, evidence, asked, p)
    steps = 1 if mode == "marginal" else rounds
    sampler = mdlm(steps) if mode == "sample" else Confident(steps, draw=Draw(temperature=0.0))
    start = State.start(torch.where(asked, MASK, evidence.pinned.clamp(min=0)))
    state = last(sampler, recorder, start, generator=generator)
    return Decided(state.tokens[asked], p[asked])


ALTERNATIVES = 4
"""Maximum number of alternatives in an edit."""
NAMED = 1e-3
"""Minimum probability of an alternative."""


@dataclass(frozen=True, eq=False)
class Asked:
    """A doubtful place of a view, with its posterior."""

    place: int
    token: int
    """The chosen token."""
    changed: bool
    doubt: float
    """The probability that the character was misread."""
    p: Float[Tensor, "v"]


def ask(view: View, *, mode: Mode, rounds: int, margin: int, seed: int) -> Iterator[Asked]:
    """Yield the posterior of every doubtful place, window by window.

    Args:
        view: The text.
        mode: How places are decided.
        rounds: Network calls per window.
        margin: Minimum context around each place.
        seed: Random seed.
    """
    doubtful = [place for place, fixed in enumerate(view.fixed) if not fixed]
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
    """Convert a decision to an edit of the text."""
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
