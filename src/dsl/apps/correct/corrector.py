"""Correct a text read with confidences: evidence in, posterior out.

    dsl.correct("the histery of rome").text

Certain characters are pinned, doubtful ones are soft evidence, missing ones are unknown. The
network predicts the original text, with probabilities.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dsl._util.validate import probability, whole_number
from dsl.apps.correct import deciding as substitutions
from dsl.apps.correct.deciding import ROUNDS, Mode
from dsl.apps.correct.errors import ErrorModel
from dsl.apps.correct.formats import plain
from dsl.apps.correct.lengths import LengthErrors, rewordings
from dsl.apps.correct.reading import Correction, Edit, Reading
from dsl.apps.correct.trust import BELIEVED, MEASURED, Trust
from dsl.apps.correct.view import MARGIN, View, sections
from dsl.checkpoints import Model, loaded

DEFAULT_MODEL = "english-tiny"
SECTION = 20_000
"""Symbols processed at a time, to bound memory."""

Progress = Callable[[int, int], None]
"""Progress callback: characters done, characters in total."""


@dataclass(frozen=True)
class Policy:
    """When a posterior becomes an edit."""

    mode: Mode = "surest"
    rounds: int = ROUNDS
    threshold: float = 0.5
    """Edits above this probability are made; 1 makes none."""
    budget: int | None = None
    """Maximum number of edits; the most probable are kept."""
    abstain: bool = False
    """Mark edits below the threshold as undecided; otherwise they are dropped."""
    belief: Trust | None = None
    """Calibration of edit probabilities: networks are overconfident among misread characters. The
    default is the map measured for Tesseract characters with the default model; other inputs use
    the probabilities of the network."""

    def __post_init__(self) -> None:
        probability("threshold", self.threshold)
        whole_number("rounds", self.rounds, least=1)
        if self.budget is not None:
            whole_number("budget", self.budget, least=0)

    def kept(self, found: Sequence[Edit]) -> list[Edit]:
        """Apply threshold and budget; the other edits are marked or dropped."""
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
        reading: A text, or a reading of a file.
        model: A character-level DSL model, or its name.
        errors: The error model of the reader.
        lengths: Rates of lost, added, split and merged characters; without them, edits never
            change the length.
        policy: When a posterior becomes an edit.
        margin: Minimum context around a doubtful character.
        seed: Random seed, for the mode `sample`.
        on_progress: Progress callback.
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
    for section in sections(reading.symbols, 2 * margin, SECTION):
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
