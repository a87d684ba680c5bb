"""All who correct, on all kinds of damage, held against the truth."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.correction import rivals
from benchmarks.correction.damage import Damaged, Task, page, tasks
from benchmarks.correction.instructed import Instructed
from benchmarks.correction.measures import Counted, Score, count, judged, score
from benchmarks.correction.pages import WEAR
from benchmarks.correction.passages import passages
from benchmarks.correction.rivals import Localized, Masked, Nobody, Rival, SpellChecker
from dsl.apps.correct.corrector import DEFAULT_MODEL, Policy, correct
from dsl.apps.correct.lengths import LengthErrors
from dsl.apps.correct.reading import Correction
from dsl.apps.correct.trust import AS_STATED, FEWEST, Trust, fit, labelled
from dsl.checkpoints import Model, load

FITTED_ON = 12
"""Validation texts on which each rival's number, and the meaning of confidences, is chosen."""
ASKED = 12
"""Texts about which the language model is asked: it takes minutes over them."""
BELIEVED_ON = 30
"""Validation texts on which it is measured how far probabilities of changes can be believed."""
FREQUENT = 5_000
"""Words that may be misheard for each other: the most frequent of the validation split."""


@dataclass(frozen=True)
class Row:
    """One rival on one task."""

    task: str
    rival: str
    setting: float
    """Its number, as chosen on validation texts."""
    texts: int
    before: float
    """Wrong characters before, as a share of those written."""
    score: Score
    seed: int = 0

    def flat(self) -> dict[str, object]:
        """Return the columns of a table for people."""
        score = self.score
        return {
            "damage": f"{self.task} ({self.before:.1%})",
            "corrected by": self.rival,
            "wrong characters": f"{score.characters_wrong.percent()}",
            "removed": score.removed.percent(),
            "wrong words": score.words_wrong.percent(),
            "clean words kept": score.clean_words_kept.percent(),
            "ECE": "" if score.ece is None else f"{score.ece:.3f} of {score.proposed}",
        }


def run(
    *,
    n: int = 60,
    seed: int = 0,
    only: Sequence[str] = (),
    by: Sequence[str] = (),
    model: str | Path = DEFAULT_MODEL,
    masked: str | Path | None = None,
    language_model: bool = False,
    done: Collection[tuple[str, str]] = (),
) -> Iterator[Row | str]:
    """Measure every rival on every task; sentences about the progress come between.

    Args:
        n: Test texts of each task.
        seed: Which passages, and everything random in the damage.
        only: Tasks whose names begin so; all if not given.
        by: Rivals whose names begin so; all if not given.
        model: The DSL model.
        masked: A model that was trained as a masked one; the DSL model is asked as one besides.
        language_model: Whether a small language model is asked as well, about few of the texts.
        done: Tasks and rivals that were measured before and are left out.
    """
    instructed = Instructed.load() if language_model else None
    network = load(model)
    refilling = [Masked(network)]
    if masked is not None:
        refilling.append(Masked(load(masked), name="masked model, trained as one"))
    test, held = (
        passages(size, seed=seed, split=split)
        for size, split in ((n, "test"), (FITTED_ON, "validation"))
    )
    further = passages(BELIEVED_ON, seed=seed + 1, split="validation")
    for task in tasks(_frequent()):
        if only and not task.name.startswith(tuple(only)):
            continue
        present = contenders(task, network, refilling)
        if instructed is not None and not task.gaps:
            present.append(instructed)
        present = [
            rival
            for rival in present
            if (task.name, rival.name) not in done and (not by or rival.name.startswith(tuple(by)))
        ]
        if not present:
            continue
        yield f"damaging texts: {task.name}"
        fitted, damaged, more = (
            [task.damage(text, seed + number) for number, text in enumerate(texts)]
            for texts in (held, test, further if task.confidences else ())
        )
        trust = _trust(fitted) if task.confidences else None
        for rival in present:
            yield f"{task.name}: {rival.name}"
            told = replace(rival, trust=trust) if isinstance(rival, Localized) else rival
            few = damaged[:ASKED] if rival is instructed else damaged
            yield replace(measure(task, told, fitted, few, more), seed=seed)


def _frequent() -> list[str]:
    """List words that may be misheard for each other."""
    texts = passages(400, seed=1, split="validation")
    counts = Counter(word for text in texts for word in text.split())
    return [word for word, _ in counts.most_common(FREQUENT) if word.isalpha() and len(word) > 2]


def contenders(task: Task, model: Model, refilling: Sequence[Masked]) -> list[Rival]:
    """List who takes part in a task: nobody looks for confidences where there are none."""
    checkers = (
        {}
        if task.gaps
        else {"symspellpy": rivals.symspell(), "pyspellchecker": rivals.pyspellchecker()}
    )
    found: list[Rival] = [Nobody()]
    found += [SpellChecker(name, look_up) for name, look_up in checkers.items()]
    if task.confidences:
        found += [
            SpellChecker(f"{name}, doubtful words only", look_up, heeds=True)
            for name, look_up in checkers.items()
        ]
    if task.confidences or task.gaps:
        found += refilling
    typed = task.name == "neighbouring keys"
    if not task.gaps:
        found.append(Localized(model, heeds=False, typed=typed))
        if task.lengths and not task.confidences:
            found.append(Localized(model, heeds=False, lengths=True))
    if task.confidences or task.gaps:
        rate = 0.0 if task.gaps else 0.03
        found += [Localized(model, mode=mode, rate=rate) for mode in ("surest", "marginal")]
        if task.lengths:
            found.append(Localized(model, lengths=True))
    return found


def measure(
    task: Task,
    rival: Rival,
    fitted: Sequence[Damaged],
    damaged: Sequence[Damaged],
    more: Sequence[Damaged] = (),
) -> Row:
    """Choose the rival's number on validation texts, and measure it on test texts.

    Args:
        task: The kind of damage.
        rival: Who corrects.
        fitted: Validation texts.
        damaged: Test texts.
        more: Further validation texts, on which it is measured how far its probabilities of changes
            can be believed, if it proposes enough of them.
    """
    best = rival.settings[0]
    if len(rival.settings) > 1:

        def wrong(setting: float) -> int:
            made = ((one, rival(one.reading, setting)) for one in fitted)
            return sum(count(one, _text(text)).wrong_after for one, text in made)

        best = min(rival.settings, key=wrong)
    proposes = isinstance(rival, Localized)
    learned = [pair for one in more if proposes for pair in _judged(one, rival(one.reading, best))]
    belief = fit(learned) if len(learned) >= FEWEST else None
    began, found = time.monotonic(), [rival(one.reading, best) for one in damaged]
    seconds = time.monotonic() - began
    pairs = list(zip(damaged, found, strict=True))
    rows: list[Counted] = [count(one, _text(made, belief)) for one, made in pairs]
    edits = [pair for one, made in pairs if proposes for pair in _judged(one, made, belief)]
    before = sum(row.wrong_before for row in rows) / sum(row.characters for row in rows)
    return Row(task.name, rival.name, best, len(rows), before, score(rows, seconds, edits))


def _text(made: str | Correction, belief: Trust | None = None) -> str:
    """Return the text with the edits that are likelier than not."""
    if isinstance(made, str):
        return made
    return replace(made, edits=Policy(belief=belief).kept(made.edits)).text


def _judged(
    one: Damaged, made: str | Correction, belief: Trust | None = None
) -> list[tuple[float, bool]]:
    """Judge all edits that were proposed, by the probabilities that they then have."""
    assert isinstance(made, Correction)
    return judged(one, replace(made, edits=Policy(threshold=0.0, belief=belief).kept(made.edits)))


def _trust(fitted: Sequence[Damaged]) -> Trust:
    return fit([pair for one in fitted for pair in labelled(one.reading, one.written)])


def measured_trust(*, n: int = 48, seed: int = 0) -> Trust:
    """Fit what Tesseract's confidences of characters mean, on validation pages of every wear."""
    return fit([pair for one in _worn(n, seed) for pair in labelled(one.reading, one.written)])


def measured_belief(*, n: int = 16, seed: int = 0) -> Trust:
    """Fit how many of the changes that `dsl correct` proposes to Tesseract's pages are right."""
    asked = Policy(threshold=0.0, belief=AS_STATED)
    return fit([
        pair
        for one in _worn(n, seed)
        for pair in judged(one, correct(one.reading, lengths=LengthErrors(), policy=asked))
    ])  # fmt: skip


def _worn(n: int, seed: int) -> Iterator[Damaged]:
    """Read validation pages of every wear."""
    for wear in WEAR:
        for number, text in enumerate(passages(n, seed=seed, split="validation")):
            yield page(wear)(text, seed + number)


def one_page(number: int) -> dict[str, str]:
    """Print a page, let Tesseract read it, and correct it as `dsl correct` does.

    Args:
        number: Which of the test pages, and how it is worn.
    """
    worn = page("middle")(passages(number + 1, seed=0)[number], number)
    corrected = correct(worn.reading, lengths=LengthErrors()).text
    found = count(worn, corrected)
    return {
        "read by Tesseract": worn.reading.text,
        "corrected": corrected,
        "written": worn.written,
        "wrong characters": f"{found.wrong_before} of {found.characters}, now {found.wrong_after}",
    }
