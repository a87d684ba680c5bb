"""Correct a text that somebody read with confidences: evidence in, a posterior out.

    dsl.correct("the histery of rome").text

Characters that are sure are pinned, doubtful ones soft evidence, missing ones unknown; the network
says what was written, and how sure that is.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dsl.arguments import probability, whole_number
from dsl.correction import substitutions
from dsl.correction.deciding import ROUNDS, Mode
from dsl.correction.errors import ErrorModel
from dsl.correction.formats import plain
from dsl.correction.lengths import LengthErrors
from dsl.correction.reading import Reading
from dsl.correction.result import Correction, Edit
from dsl.correction.rewording import rewordings
from dsl.correction.tesseract import BELIEVED, MEASURED
from dsl.correction.trust import Trust
from dsl.correction.view import View, sections
from dsl.correction.windows import MARGIN
from dsl.loading import Model, loaded

DEFAULT_MODEL = "english-tiny"

Progress = Callable[[int, int], None]
"""Told how many characters of how many are done."""


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
    """Mark what falls short of the threshold, gaps among it, instead of leaving it alone or
    filling the gap all the same."""
    belief: Trust | None = None
    """How many of the changes of a stated probability are right: networks are surer than they
    should be among characters that were misread. If not given, what was measured of Tesseract's
    characters and the default model, or what the network states."""

    def __post_init__(self) -> None:
        probability("threshold", self.threshold)
        whole_number("rounds", self.rounds, least=1)
        if self.budget is not None:
            whole_number("budget", self.budget, least=0)

    def kept(self, found: Sequence[Edit]) -> list[Edit]:
        """Apply threshold and budget; what falls short is marked or dropped."""
        if self.belief is not None:
            found = [replace(edit, probability=self.belief(edit.probability)) for edit in found]
        sure = [edit for edit in found if self._is_sure(edit)]
        if self.budget is not None:
            sure = sorted(sure, key=lambda edit: -edit.probability)[: self.budget]
        made = {id(edit) for edit in sure}
        marked = [
            edit if id(edit) in made else replace(edit, decided=False)
            for edit in found
            if id(edit) in made or self.abstain
        ]
        return sorted(marked, key=lambda edit: (edit.place, edit.size))

    def _is_sure(self, edit: Edit) -> bool:
        filled = edit.size == 1 and not edit.old
        always = filled and not self.abstain and self.threshold < 1
        return always or edit.probability > self.threshold


def correct(
    reading: str | Reading,
    model: str | Path | Model = DEFAULT_MODEL,
    *,
    errors: ErrorModel | None = None,
    lengths: LengthErrors | None = None,
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
        lengths: How often the reader loses, adds, splits or merges characters; if not given, a
            character stands for a character.
        policy: When a posterior becomes an edit.
        margin: Characters around a doubtful one that the model sees at least.
        seed: Where random numbers start, for the mode `sample`.
        on_progress: Told how far it is.
    """
    reading = plain.read(reading) if isinstance(reading, str) else reading
    policy, network = policy or Policy(), loaded(model)
    errors = errors or ErrorModel()
    if errors.trust is None:
        errors = replace(errors, trust=MEASURED.get(reading.scale))
    if policy.belief is None and network.name == DEFAULT_MODEL:
        policy = replace(policy, belief=BELIEVED.get(reading.scale))
    doubt = array("d", [math.nan]) * len(reading.symbols)
    found: list[Edit] = []
    for section in sections(reading.symbols, 2 * margin):
        on_progress(section.own.start, len(reading.symbols))
        view = View.of(reading, network, errors, section)
        asked = list(
            substitutions.ask(
                view, mode=policy.mode, rounds=policy.rounds, margin=margin, seed=seed
            )
        )
        for one in asked:
            doubt[view.shown[one.place].symbol] = one.doubt
        edits = [substitutions.edit(view, one) for one in asked if one.changed]
        found += edits if lengths is None else _merged(edits, rewordings(view, asked, lengths))
    on_progress(len(reading.symbols), len(reading.symbols))
    return Correction(reading, policy.kept(found), doubt, network.name)


def _merged(single: Sequence[Edit], several: Sequence[Edit]) -> list[Edit]:
    """Drop edits of characters that a change of length touches."""
    taken = {place for edit in several for place in range(edit.place, edit.place + edit.size + 1)}
    return [edit for edit in single if edit.place not in taken] + list(several)
