"""Correction against enumerated truth, and the promises it makes."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dsl.apps.correct import corrector
from dsl.apps.correct.corrector import Policy, correct
from dsl.apps.correct.deciding import Mode, ask, decide
from dsl.apps.correct.errors import ErrorModel
from dsl.apps.correct.formats import FORMATS, plain
from dsl.apps.correct.lengths import LengthErrors
from dsl.apps.correct.reading import Correction, Edit, Reading, Symbol
from dsl.apps.correct.trust import AS_STATED, BELIEVED, CHARACTERS, Trust
from dsl.apps.correct.view import View, sections, windows
from dsl.checkpoints.loading import Model, load
from dsl.conditioning.evidence import Evidence, log_likelihood
from dsl.conditioning.hints import Confident, Known, NBest, Unknown
from dsl.core import MASK, oracle
from dsl.core.streams import stream

LETTERS = "abcdef"


@cache
def tiny() -> Model:
    return load("text8-tiny")


def reading(*symbols: tuple[str, float | None, tuple[tuple[str, float], ...]]) -> Reading:
    source, made = "", []
    for text, sure, others in symbols:
        made.append(Symbol(text, len(source), len(source) + len(text), sure, others))
        source += text
    return Reading(source, made)


READ = reading(
    ("a", 0.6, ()),  # a confidence
    ("", None, ()),  # a gap
    ("c", 1.0, ()),  # for certain
    ("d", 0.5, (("e", 0.3), ("f", 0.1))),  # n best
    ("b", None, ()),  # nothing said
)
ERRORS = ErrorModel(rate=0.2)


HINTS = (
    Confident(0, 0.6), Unknown(), Known(2), NBest({3: 0.5, 4: 0.3, 5: 0.1}), Confident(1, 0.8)
)  # fmt: skip
TEXTS = torch.tensor(list(itertools.product(range(6), repeat=5)))


@cache
def joint() -> torch.Tensor:
    """P(text | read) of every text, by enumeration."""
    chain = oracle.markov(6, 5)
    score = chain.log_prob(TEXTS).double()
    for i, hint in enumerate(HINTS):
        score = score + log_likelihood([hint], chain.codebook.double())[TEXTS[:, i]]
    return score.softmax(dim=0)


def truth(known: dict[int, int] | None = None) -> torch.Tensor:
    """P(x_i = v | read, known places) of every place."""
    p = joint()
    for place, token in (known or {}).items():
        p = p * (TEXTS[:, place] == token)
    return (
        torch.stack([torch.stack([p[TEXTS[:, i] == v].sum() for v in range(6)]) for i in range(5)])
        / p.sum()
    )


def test_the_posterior_is_bayes() -> None:
    """Mask, token, confidence and n-best together, over every text there is."""
    view = View.of(READ, load("oracle:markov", length=5), ERRORS)
    found = {one.place: one for one in ask(view, mode="marginal", rounds=1, margin=2, seed=0)}
    exact = truth()
    assert sorted(found) == [0, 1, 3, 4], "what is certain is not asked about"
    for place, one in found.items():
        torch.testing.assert_close(one.p.double(), exact[place], atol=2e-3, rtol=0)
        assert one.token == int(exact[place].argmax())


def test_the_surest_place_is_decided_first_and_the_others_given_it() -> None:
    """With a round for each place, every posterior is Bayes given the earlier decisions."""
    view = View.of(READ, load("oracle:markov", length=5), ERRORS)
    found = {one.place: one for one in ask(view, mode="surest", rounds=4, margin=2, seed=0)}
    known: dict[int, int] = {}
    for _ in range(4):
        p = truth(known)
        place = max(set(found) - set(known), key=lambda i: float(p[i].max()))
        torch.testing.assert_close(found[place].p.double(), p[place], atol=2e-3, rtol=0)
        known[place] = int(p[place].argmax())
        assert found[place].token == known[place]
    first = truth()
    assert any(float((one.p - first[i]).abs().max()) > 0.05 for i, one in found.items())


def test_samples_follow_the_joint_posterior() -> None:
    """1,500 draws in 128 rounds: pairs of places within 4 standard errors. One round is too few."""
    n, chain = 1_500, oracle.markov(6, 5)
    evidence = Evidence.of([list(HINTS)], chain).expand(n)
    asked = (evidence.pinned == MASK).clone()
    pairs = TEXTS[:, 3] * 6 + TEXTS[:, 4]
    exact = torch.zeros(36, dtype=torch.float64).index_add(0, pairs, joint())
    worst = {}
    for rounds in (1, 128):
        made = decide(chain, evidence, asked, mode="sample", rounds=rounds, generator=stream(0))
        drawn = made.tokens.view(n, 4)
        share = torch.bincount(drawn[:, 2] * 6 + drawn[:, 3], minlength=36) / n
        worst[rounds] = float(((share - exact) / (exact * (1 - exact) / n).sqrt()).abs().max())
    assert worst[128] < 4 < worst[1]


def test_edits_report_that_posterior() -> None:
    policy = Policy("marginal", threshold=0.0, abstain=True)
    made = correct(READ, load("oracle:markov", length=5), errors=ERRORS, policy=policy)
    assert made.model == "oracle:markov"
    exact = truth()
    for edit in made.edits:
        p = exact[edit.place]
        assert edit.probability == pytest.approx(float(p.max()), abs=2e-3)
        assert edit.new == LETTERS[int(p.argmax())] != edit.old
        for text, share in edit.alternatives:
            assert share == pytest.approx(float(p[LETTERS.index(text)]), abs=2e-3)


@pytest.mark.parametrize(
    "mode", ["surest", *(pytest.param(m, marks=pytest.mark.slow) for m in ("marginal", "sample"))]
)
def test_threshold_one_changes_nothing(mode: Mode) -> None:
    text = "Teh  Rome\n\n\tof 753 BC — “a” \U0001f600 \r\n"
    made = correct(text, tiny(), policy=Policy(mode, threshold=1.0), lengths=LengthErrors())
    assert made.text == made.file() == text and not made.decided


def test_sure_characters_never_change() -> None:
    text = "the histery of rome"
    symbols = [Symbol(c, i, i + 1, 1.0 if c != "e" else 0.3) for i, c in enumerate(text)]
    made = correct(Reading(text, symbols), tiny(), policy=Policy(threshold=0.0))
    assert all(text[edit.place] == "e" for edit in made.edits)
    assert made.text == "the history of rome"


def test_what_the_alphabet_cannot_say_survives() -> None:
    """Capitals, digits, marks, accents and spacing stay, though the model knows none of them."""
    text = "United  Stetes of América,\nin 1776: the Emplre.\n"
    made = correct(text, tiny(), errors=ErrorModel(rate=0.1), lengths=LengthErrors())
    assert "United  States of América,\nin 1776:" in made.text
    assert made.text.endswith("Empire.\n"), "a letter keeps its case"
    kept = [c for c in text if not c.isascii() or not (c.isalpha() or c == " ")]
    assert [c for c in made.text if not c.isascii() or not (c.isalpha() or c == " ")] == kept


def test_gaps_are_filled_or_marked() -> None:
    text = "the capital of engl_nd"
    symbols = [
        Symbol("" if c == "_" else c, i, i + 1, None if c == "_" else 1.0)
        for i, c in enumerate(text)
    ]
    gapped = Reading(text, symbols)
    assert correct(gapped, tiny()).text == "the capital of england"
    shy = correct(gapped, tiny(), policy=Policy(threshold=0.999999, abstain=True))
    assert shy.text == text and [edit.decided for edit in shy.edits] == [False]


def test_a_budget_keeps_the_surest() -> None:
    text = "the histery of the united stetes of amerlca"
    whole = correct(text, tiny(), policy=Policy("marginal"))
    one = correct(text, tiny(), policy=Policy("marginal", budget=1))
    assert len(whole.edits) == 3
    best = max(whole.edits, key=lambda edit: edit.probability)
    assert one.edits == [best]


def test_lengths_are_mended_where_letters_look_like_others() -> None:
    made = correct("the govemment of the rnodern world", tiny(), lengths=LengthErrors())
    assert made.text == "the government of the modern world"
    for edit in made.edits:
        assert dict(edit.lengths)[len(edit.new) - len(edit.old)] > 0.5
        assert sum(share for _, share in edit.lengths) == pytest.approx(1.0)
    assert [made.span(edit) for edit in made.edits] == [(8, 9), (21, 23)]


def test_the_cut_does_not_matter() -> None:
    """A doubtful letter gets the same answer wherever the windows begin."""
    story = "the history of the roman empire and of the people who lived in it is long and the "
    text = story * 6
    place = text.index("roman", 200) + 2
    symbols = [Symbol(c, i, i + 1, 0.4 if i == place else 1.0) for i, c in enumerate(text)]
    doubts = []
    for begin in (0, 7, 40, 101):
        part = [Symbol(s.text, i, i + 1, s.confidence) for i, s in enumerate(symbols[begin:])]
        made = correct(Reading(text[begin:], part), tiny(), policy=Policy("marginal"))
        doubts.append(made.doubt[place - begin])
    assert max(doubts) - min(doubts) < 0.01


@given(st.integers(1, 400), st.sets(st.integers(0, 399)), st.integers(1, 60), st.integers(0, 40))
def test_windows_answer_every_place_once(
    size: int, places: set[int], length: int, margin: int
) -> None:
    doubtful = sorted(place for place in places if place < size)
    found = list(windows(doubtful, size, length, margin))
    assert [place for window in found for place in window.asked] == doubtful
    room = min(margin, (length - 1) // 2)
    for window in found:
        assert window.end - window.begin == min(size, length)
        for place in window.asked:
            assert window.begin <= max(0, place - room) and min(size, place + room) <= window.end


@given(st.text(alphabet="ab ", max_size=80), st.integers(1, 9), st.integers(1, 30))
def test_sections_cover_a_text_once(text: str, margin: int, size: int) -> None:
    found = list(sections(plain.read(text).symbols, margin, size))
    assert [place for section in found for place in section.own] == list(range(len(text)))
    for section in found:
        assert len(section.own) <= size
        assert section.seen.start == max(0, section.own.start - margin)
        assert section.seen.stop == min(len(text), section.own.stop + margin)


def test_a_long_text_is_corrected_like_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """In sections of 150 characters, or in one: the same text, nearly the same probabilities."""
    text = "the histery of the united stetes of amerlca and of the people who live there now. " * 4
    whole = correct(text, tiny(), policy=Policy("marginal"))
    begins: list[int] = []
    monkeypatch.setattr(corrector, "SECTION", 150)
    cut = correct(
        text, tiny(), policy=Policy("marginal"), on_progress=lambda done, _: begins.append(done)
    )
    assert len(begins) == 4, "three sections, and the end"
    assert cut.text == whole.text != text
    # 0.022; without the context of other sections 0.038
    assert max(abs(a - b) for a, b in zip(cut.doubt, whole.doubt, strict=True) if a == a) < 0.03


@pytest.mark.parametrize(
    "source, kind, edit, wanted",
    [
        ("x{h|0.4}y", "inline", Edit(0, 2, "xh", "m", 0.9), "m{|0.4}y"),
        (
            '[{"text":"in"},{"text":"to"}]', "words", Edit(1, 3, "n t", "n-t", 0.9),
            '[{"text":"in-t"},{"text":"o"}]',
        ),
        ('[{"text":"in"}]', "words", Edit(2, 0, "", ".", 0.9), '[{"text":"in."}]'),
    ],
)  # fmt: skip
def test_edits_of_several_characters_leave_markup_alone(
    source: str, kind: str, edit: Edit, wanted: str
) -> None:
    form = FORMATS[kind]
    reading = form.read(source)
    made = Correction(reading, [edit], [0.0] * len(reading.symbols), "nobody")
    assert made.file(form.escape) == wanted


@settings(deadline=None, max_examples=10)
@given(st.text(max_size=30))
def test_any_text_is_taken(text: str) -> None:
    made = correct(text, tiny(), policy=Policy(threshold=1.0), lengths=LengthErrors())
    assert made.file() == text


def test_trust_is_monotone_and_refuses_nonsense() -> None:
    trust = Trust((0.0, 0.5, 1.0), (0.2, 0.3, 0.9))
    values = [trust(c / 10) for c in range(11)]
    assert values == sorted(values) and values[0] == 0.2 and values[-1] == pytest.approx(0.9)
    with pytest.raises(ValueError, match="true confidences must rise"):
        Trust((0.0, 1.0), (0.9, 0.5))
    with pytest.raises(ValueError, match="the confidence of 'a'"):
        Symbol("a", 0, 1, 1.5)
    with pytest.raises(ValueError, match="one character"):
        Symbol("ab", 0, 1)


def test_other_models_are_refused() -> None:
    for name in ("text8-tiny-ar", "text8-tiny-mdlm"):
        with pytest.raises(ValueError, match="cannot correct text"):
            correct("the cat", name)


def test_probabilities_are_put_right_before_the_threshold() -> None:
    text = "the histery of rome and the united states"
    bold = correct(text, tiny(), policy=Policy("marginal", threshold=0.0))
    doubted = Policy("marginal", belief=Trust((0.0, 1.0), (0.0, 0.4)))
    kept = doubted.kept(bold.edits)
    assert bold.edits and not kept, "nothing is likelier than not any more"
    halved = Policy(threshold=0.0, belief=Trust((0.0, 1.0), (0.0, 0.5))).kept(bold.edits)
    assert [e.probability for e in halved] == pytest.approx([e.probability / 2 for e in bold.edits])


def test_changes_of_tesseracts_characters_are_believed_as_far_as_was_measured() -> None:
    """Only where it was measured: that reader, that model, and unless somebody says otherwise."""
    text = "the goverment of the Unlted States"
    symbols = [Symbol(c, i, i + 1, 0.9 if c == "l" else 0.999) for i, c in enumerate(text)]
    asked = Policy("marginal", threshold=0.0)

    def proposed(scale: str, model: str = "english-tiny", **policy: Any) -> list[float]:
        made = correct(Reading(text, symbols, scale=scale), model, policy=replace(asked, **policy),
                       errors=ErrorModel(trust=AS_STATED))  # fmt: skip
        return [edit.probability for edit in made.edits]

    stated = proposed(CHARACTERS, belief=AS_STATED)
    assert stated and stated == proposed("")
    believed = proposed(CHARACTERS)
    assert believed == [BELIEVED[CHARACTERS](p) for p in stated] != stated
    assert proposed(CHARACTERS, "text8-tiny") == proposed("", "text8-tiny")
