"""Correct a text that somebody read with confidences: evidence in, a posterior out.

    dsl.correct("the histery of rome").text

Characters that are sure are pinned, doubtful ones soft evidence, missing ones unknown; the network
says what was written, and how sure that is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from dsl.arguments import probability, whole_number
from dsl.correction.deciding import ROUNDS, Mode, decide
from dsl.correction.errors import ErrorModel
from dsl.correction.reading import Reading, Symbol
from dsl.correction.result import Correction, Edit
from dsl.correction.spelling import Shown, Spelling
from dsl.correction.windows import MARGIN, Window, windows
from dsl.denoiser import at_once
from dsl.evidence import Evidence
from dsl.hints import Hint, Known
from dsl.loading import Model, loaded
from dsl.streams import stream

DEFAULT_MODEL = "english-tiny"
ALTERNATIVES = 4
"""Characters that are named beside the chosen one."""
NAMED = 1e-3
"""The least probability of one that is named."""

Progress = Callable[[int, int], None]
"""Told how many windows of how many are done."""


@dataclass(frozen=True)
class Policy:
    """When a posterior becomes an edit."""

    mode: Mode = "surest"
    rounds: int = ROUNDS
    threshold: float = 0.5
    """An edit is made if it is more probable than this; at 1 nothing is."""
    budget: int | None = None
    """The most edits; the most probable are made."""
    abstain: bool = False
    """Mark what falls short of the threshold, and gaps whose filling does, instead of being
    silent about it, or filling them all the same."""

    def __post_init__(self) -> None:
        probability("threshold", self.threshold)
        whole_number("rounds", self.rounds, least=1)
        if self.budget is not None:
            whole_number("budget", self.budget, least=0)


def correct(
    reading: str | Reading,
    model: str | Path | Model = DEFAULT_MODEL,
    *,
    errors: ErrorModel | None = None,
    policy: Policy | None = None,
    margin: int = MARGIN,
    seed: int = 0,
    on_progress: Progress = lambda *_: None,
) -> Correction:
    """Correct a reading.

    Args:
        reading: A text, or what `dsl.correction.formats` read from a file.
        model: A model of characters with states between mask and token, or its name.
        errors: How the reader errs.
        policy: When a posterior becomes an edit.
        margin: Characters around a doubtful one that the model sees at least.
        seed: Where random numbers start, for the mode `sample`.
        on_progress: Told how far it is.
    """
    if isinstance(reading, str):
        symbols = [Symbol(text, i, i + 1) for i, text in enumerate(reading)]
        reading = Reading(reading, symbols)
    job = Job.of(reading, loaded(model), errors or ErrorModel(), policy or Policy())
    found: list[Edit] = []
    doubt = [math.nan] * len(reading.symbols)
    for edit in job.edits(margin, seed, on_progress):
        doubt[edit.place] = edit.probability if edit.new != edit.old else 1 - edit.probability
        if edit.new != edit.old:
            found.append(edit)
    return Correction(reading, job.kept(found), doubt, job.model.name)


@dataclass(frozen=True, eq=False)
class Job:
    """A reading as a model sees it."""

    reading: Reading
    model: Model
    spelling: Spelling
    view: Sequence[Shown]
    hints: Sequence[Hint]
    policy: Policy

    @classmethod
    def of(cls, reading: Reading, model: Model, errors: ErrorModel, policy: Policy) -> Job:
        """Spell a reading with the tokens of a model; what cannot be said is pinned."""
        if "states" not in model.family.answers or model.documents:
            raise ValueError(
                f"{model.name} cannot correct text: a DSL model of running characters is needed"
            )
        spelling = Spelling(model)
        view = spelling.shown(reading.symbols)
        hints: list[Hint] = [
            Known(one.token)
            if one.fixed or one.symbol in reading.separators
            else errors.hint(reading.symbols[one.symbol], one.token, spelling)
            for one in view
        ]
        return cls(reading, model, spelling, view, hints, policy)

    def edits(self, margin: int, seed: int, on_progress: Progress) -> Iterator[Edit]:
        """Ask about every doubtful place, window by window; places that stay are given, too."""
        doubtful = [i for i, hint in enumerate(self.hints) if not isinstance(hint, Known)]
        length = self.model.length
        whole = list(windows(doubtful, len(self.view), length, margin))
        size = at_once(self.model.denoiser, length)
        for begin in range(0, len(whole), size):
            on_progress(begin, len(whole))
            yield from self._batch(whole[begin : begin + size], stream(seed, begin))
        on_progress(len(whole), len(whole))

    @torch.no_grad()
    def _batch(self, part: Sequence[Window], generator: torch.Generator) -> Iterator[Edit]:
        rows = [self.hints[window.begin : window.end] for window in part]
        evidence = Evidence.of(rows, self.model.denoiser)
        asked = torch.zeros_like(evidence.pinned, dtype=torch.bool)
        for row, window in enumerate(part):
            asked[row, [place - window.begin for place in window.asked]] = True
        decided = decide(
            self.model.denoiser,
            evidence,
            asked,
            mode=self.policy.mode,
            rounds=self.policy.rounds,
            generator=generator,
        )
        places = [place for window in part for place in window.asked]
        for place, token, p in zip(places, decided.tokens.tolist(), decided.p, strict=True):
            yield self._edit(place, token, p.cpu())

    def _edit(self, place: int, token: int, p: torch.Tensor) -> Edit:
        one = self.view[place]
        symbol = self.reading.symbols[one.symbol]
        old = symbol.text
        best = p.topk(min(ALTERNATIVES + 1, len(p)))
        named = [
            (self.spelling.written(other, old), share)
            for share, other in zip(best.values.tolist(), best.indices.tolist(), strict=True)
            if other != token and share >= NAMED
        ]
        unchanged = token == one.token and not symbol.is_gap
        new = old if unchanged else self.spelling.written(token, old)
        return Edit(one.symbol, 1, old, new, float(p[token]), named[:ALTERNATIVES])

    def kept(self, found: Sequence[Edit]) -> list[Edit]:
        """Apply threshold and budget; what falls short is marked or dropped."""
        policy = self.policy
        sure = [edit for edit in found if self._is_sure(edit)]
        if policy.budget is not None:
            sure = sorted(sure, key=lambda edit: -edit.probability)[: policy.budget]
        made = {edit.place for edit in sure}
        marked = [
            edit if edit.place in made else replace(edit, decided=False)
            for edit in found
            if edit.place in made or policy.abstain
        ]
        return sorted(marked, key=lambda edit: edit.place)

    def _is_sure(self, edit: Edit) -> bool:
        always = not edit.old and not self.policy.abstain and self.policy.threshold < 1
        return always or edit.probability > self.policy.threshold


