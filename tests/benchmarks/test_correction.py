"""The benchmark of corrections: its damage, its rivals and its measures."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.correction import damage, table
from benchmarks.correction.damage import Damaged, Task
from benchmarks.correction.measures import Share, count, judged, level, score
from benchmarks.correction.rivals import Localized, Masked, Nobody, SpellChecker
from benchmarks.correction.table import Row, contenders, measure

from benchmarks import __main__ as bench
from dsl.apps.correct.corrector import Policy, correct
from dsl.apps.correct.formats import plain
from dsl.apps.correct.reading import Correction, Reading, Symbol
from dsl.checkpoints.loading import load

TEXT = "The history of the old town began with a bridge, and the river was never far away."


def read(text: str, confidence: float, low: dict[int, float] | None = None) -> Reading:
    symbols = [Symbol(c, i, i + 1, (low or {}).get(i, confidence)) for i, c in enumerate(text)]
    return Reading(text, symbols)


@pytest.mark.parametrize("make", [damage.slipped, damage.hasty, damage.gaps(0.2)])
def test_damage_depends_on_the_seed_alone(make: damage.Callable[[str, int], Damaged]) -> None:
    one, again, other = make(TEXT * 3, 1), make(TEXT * 3, 1), make(TEXT * 3, 2)
    assert one.reading.text == again.reading.text != other.reading.text
    assert one.written == TEXT * 3


def test_slips_keep_the_length_and_gaps_are_known() -> None:
    slipped = damage.slipped(TEXT * 5, 0)
    assert len(slipped.reading.text) == len(TEXT * 5)
    wrong = count(slipped, slipped.reading.text).wrong_before
    assert 0.01 < wrong / len(TEXT * 5) < 0.08
    missing = damage.gaps(0.3)(TEXT * 5, 0)
    share = sum(symbol.is_gap for symbol in missing.reading.symbols) / len(TEXT * 5)
    assert share == pytest.approx(0.3, abs=0.1)


def test_misheard_words_have_less_confidence() -> None:
    heard = damage.misheard(["bridge", "bridgo", "river", "raver", "never", "naver"])
    made = heard(TEXT * 20, 0)
    right = {word for word in TEXT.split()}
    sure: dict[bool, list[float]] = {True: [], False: []}
    words = made.reading.text.split()
    places = np.cumsum([0, *(len(word) + 1 for word in words)])
    for word, place in zip(words, places, strict=False):
        confidence = made.reading.symbols[int(place)].confidence
        assert confidence is not None
        sure[word in right].append(confidence)
    assert len(sure[False]) > 5
    assert np.mean(sure[True]) > np.mean(sure[False]) + 0.1


def test_what_is_counted() -> None:
    damaged = Damaged("one two three four", plain.read("one tvo three  fuor"))
    found = count(damaged, "one two thee fuor")
    assert (found.wrong_before, found.wrong_after) == (3, 3)
    assert (found.wrong_words_before, found.wrong_words_after) == (2, 2)
    assert (found.clean, found.kept) == (2, 1), "three was spoilt"
    assert level("“a”  —\nb") == '"a" - b'


def test_shares_add_up_and_have_errors() -> None:
    rows = [count(Damaged("abcd", plain.read(text)), text) for text in ("abcd", "abxx")]
    share = Share.of(rows, lambda r: r.wrong_after, lambda r: r.characters)
    assert share.value == pytest.approx(0.25)
    assert share.error == pytest.approx(0.25)  # two texts: 0 and 1/2, mean 1/4, error 1/4


def test_an_edit_is_right_if_it_alone_makes_the_text_truer() -> None:
    written = "the history of rome"
    made = correct("the histery of rome", "text8-tiny", policy=Policy("marginal", threshold=0.0))
    found = judged(Damaged(written, made.reading), made)
    right = {edit.place for edit, (_, good) in zip(made.edits, found, strict=True) if good}
    assert right == {written.index("o", 5)}
    summary = score([count(Damaged(written, made.reading), made.text)], 1.0, found)
    assert summary.ece is not None and 0 <= summary.ece <= 1
    assert len(summary.risk) == 4 and summary.proposed == len(found)


def test_a_spell_checker_keeps_capitals_and_heeds_doubt() -> None:
    dictionary = {"histery": "history", "brigde": "bridge"}.get
    text = "Histery, and a brigde."
    bold = SpellChecker("x", dictionary)
    assert bold(plain.read(text), 2.0) == "History, and a bridge."
    careful = SpellChecker("x", dictionary, heeds=True)
    doubted = read(text, 0.99, {2: 0.5})
    assert careful(doubted, 0.9) == "History, and a brigde."
    assert Nobody()(doubted, 0.0) == text


@pytest.mark.parametrize("name", ["text8-tiny", "text8-tiny-mdlm"])
def test_a_masked_model_fills_in_what_was_doubted_and_believes_the_rest(name: str) -> None:
    model = load(name)
    wrong = "the histery of the united states"
    found = Masked(model)(read(wrong, 0.99, {8: 0.2}), 0.5)
    assert [edit.place for edit in found.edits] in ([8], [])
    assert all(found.reading.symbols[edit.place].confidence == 0.2 for edit in found.edits)


def test_a_number_is_chosen_on_other_texts_than_are_measured() -> None:
    task = Task("toy", damage.slipped)
    seen: list[float] = []

    class Rival:
        name, settings = "toy", (0.0, 1.0)

        def __call__(self, reading: Reading, setting: float) -> str:
            seen.append(setting)
            return TEXT if setting == 1.0 else reading.text

    fitted, tested = ([damage.slipped(TEXT, s) for s in seeds] for seeds in ((1, 2), (3, 4, 5)))
    row = measure(task, Rival(), fitted, tested)
    assert row.setting == 1.0 and row.score.characters_wrong.value == 0.0
    assert row.score.removed.value == 1.0 and row.before > 0
    assert seen == [0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert set(row.flat()) >= {"damage", "corrected by", "removed"}


def test_confidences_are_heeded_or_not() -> None:
    model = load("text8-tiny")
    reading = read("the histery of the united states", 0.9999, {8: 0.3})
    told = Localized(model, mode="marginal")(reading, 0.0)
    assert [edit.place for edit in told.edits if edit.probability > 0.5] == [8]
    untold = Localized(model, heeds=False)(reading, 0.01)
    assert len([d for d in untold.doubt if d == d]) > 10, "everything is doubtful"


def test_what_is_not_missing_is_certain_in_a_text_with_gaps() -> None:
    """Then evidence is masks and tokens, and the network is asked just as a masked one."""
    model = load("text8-tiny")
    task = Task("gaps", damage.gaps(0.3), gaps=True)
    broken = task.damage("the history of the old town began with a bridge", 0)
    found = {rival.name: rival for rival in contenders(task, model, [Masked(model)])}
    assert set(found) == {"no correction", "masked and refilled", "DSL with confidences",
                          "DSL with confidences, marginal"}  # fmt: skip
    dsl, masked = found["DSL with confidences"], found["masked and refilled"]
    ours = dsl(broken.reading, dsl.settings[0])
    theirs = masked(broken.reading, masked.settings[0])
    assert isinstance(ours, Correction) and isinstance(theirs, Correction)
    assert ours.text == theirs.text
    assert all(broken.reading.symbols[edit.place].is_gap for edit in ours.edits)


def test_a_benchmark_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows are kept as they come, not measured twice, and not mixed with those of another run."""
    kept, asked = tmp_path / "rows.jsonl", []
    made = measure(Task("toy", damage.slipped), Nobody(), (), [damage.slipped(TEXT, 0)] * 3)

    def run(*, done: set[tuple[str, str]], seed: int, **_: Any) -> Iterator[Row | str]:
        asked.append(set(done))
        for name in ("first", "second"):
            if ("toy", name) not in done:
                yield f"toy: {name}"
                yield replace(made, rival=name, seed=seed)

    monkeypatch.setattr(table, "run", run)
    order = ["correction", "--texts", "3", "--out", str(kept)]
    kept.write_text(json.dumps(asdict(replace(made, rival="first"))) + "\n")
    bench.main(order)
    assert asked == [{("toy", "first")}] and len(kept.read_text().splitlines()) == 2
    assert "second" in capsys.readouterr().out
    bench.main(order)
    assert len(kept.read_text().splitlines()) == 2
    rows = kept.read_text()
    for cut in (rows[:-20], rows.rstrip("\n")):  # half a line, and a line without its newline
        kept.write_text(cut)
        bench.main(order)
        assert kept.read_text() == rows
    with pytest.raises(ValueError, match="rows of 3 texts and seed 1, got 3 and 0"):
        bench.main([*order, "--seed", "1"])


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("tesseract") is None and not os.environ.get("DSL_NO_SKIP"),
    reason="tesseract is not installed",
)
def test_worn_pages_are_read_with_errors_that_confidences_tell() -> None:
    pytest.importorskip("PIL")
    from dsl.apps.correct.trust import fit, labelled

    long = " ".join([TEXT, "Its people made paper and glass, and sold both to the villages."] * 3)
    pages = [damage.page("heavy")(long, seed) for seed in range(6)]
    sample = [pair for page in pages for pair in labelled(page.reading, page.written)]
    sure, doubtful = ([r for c, r in sample if (c > 0.99) == high] for high in (True, False))
    assert np.mean(sure) > np.mean(doubtful) + 0.1
    task = Task("OCR", damage.page("heavy"), confidences=True, lengths=True)
    model = load("english-tiny")
    rivals = contenders(task, model, [Masked(model)])
    names = [rival.name for rival in rivals]
    assert names[0] == "no correction" and len(names) == len(set(names)) == 10
    best = next(rival for rival in rivals if rival.name == "DSL with confidences, marginal")
    assert isinstance(best, Localized)
    row = measure(task, replace(best, trust=fit(sample)), pages[:2], pages)
    assert row.score.characters_wrong.value < row.before
