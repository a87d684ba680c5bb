"""All methods on all kinds of damage."""

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
"""Validation texts for hyper-parameters and the calibration of confidences."""
ASKED = 12
"""Texts for the language model, which is slow."""
BELIEVED_ON = 30
"""Validation texts for the calibration of edit probabilities."""
FREQUENT = 5_000
"""Words that may be misheard: the most frequent of the validation split."""


@dataclass(frozen=True)
class Row:
    """One method on one task."""

    task: str
    rival: str
    setting: float
    """Its hyper-parameter, tuned on validation texts."""
    texts: int
    before: float
    """Error rate before correction."""
    score: Score
    seed: int = 0

    def flat(self) -> dict[str, object]:
        """Return the columns of the printed table."""
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
    """Measure every method on every task; yield rows and progress messages.

    Args:
        n: Test texts per task.
        seed: Random seed of passages and damage.
        only: Prefixes of task names; default all.
        by: Prefixes of method names; default all.
        model: The DSL model.
        masked: A masked model; the DSL model is also used as one.
        language_model: Whether to include a small language model, on few texts.
        done: Tasks and methods to skip.
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
            fair = replace(rival, trust=trust) if isinstance(rival, Localized) else rival
            few = damaged[:ASKED] if rival is instructed else damaged
            yield replace(measure(task, fair, fitted, few, more), seed=seed)


def _frequent() -> list[str]:
    """List words that may be misheard."""
    texts = passages(400, seed=1, split="validation")
    counts = Counter(word for text in texts for word in text.split())
    return [word for word, _ in counts.most_common(FREQUENT) if word.isalpha() and len(word) > 2]


def contenders(task: Task, model: Model, refilling: Sequence[Masked]) -> list[Rival]:
    """List the methods for a task; those that need confidences only where there are any."""
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
    """Tune a method on validation texts, and measure it on test texts.

    Args:
        task: The kind of damage.
        rival: The method.
        fitted: Validation texts.
        damaged: Test texts.
        more: More validation texts, to calibrate edit probabilities if there are enough edits.
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
    """Return the text with the edits above probability 1/2."""
    if isinstance(made, str):
        return made
    return replace(made, edits=Policy(belief=belief).kept(made.edits)).text


def _judged(
    one: Damaged, made: str | Correction, belief: Trust | None = None
) -> list[tuple[float, bool]]:
    """Judge all proposed edits, with calibrated probabilities."""
    assert isinstance(made, Correction)
    return judged(one, replace(made, edits=Policy(threshold=0.0, belief=belief).kept(made.edits)))


def _trust(fitted: Sequence[Damaged]) -> Trust:
    return fit([pair for one in fitted for pair in labelled(one.reading, one.written)])


def measured_trust(*, n: int = 48, seed: int = 0) -> Trust:
    """Calibrate Tesseract's character confidences on validation pages of every wear."""
    return fit([pair for one in _worn(n, seed) for pair in labelled(one.reading, one.written)])


def measured_belief(*, n: int = 16, seed: int = 0) -> Trust:
    """Calibrate the edit probabilities of `dsl correct` on Tesseract's pages."""
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
    """Print a page, read it with Tesseract, and correct it as `dsl correct` does.

    Args:
        number: The number of the test page.
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
