from __future__ import annotations

import pytest
import torch

from dsl.apps.demo.mending import ALTERNATIVES, GAP, mend
from dsl.checkpoints.loading import load
from dsl.conditioning.evidence import Evidence, given, log_likelihood
from dsl.conditioning.hints import Confident, Unknown
from dsl.core import oracle
from dsl.core.denoiser import Endpoints
from dsl.evaluation.calibration import leave_one_out

LETTERS = "abcdef"


def test_the_posterior_is_bayes_before_anything_is_decided() -> None:
    """On an exact chain: the prior tilted by the reader's confidences, letter by letter."""
    chain = oracle.markov(6, 8)
    read, sure = "ab_defab", [0.9, 0.5, 0.7, 0.6, 0.99, 0.3, 0.8, 0.4]
    found = mend(read, sure, "oracle:markov")
    hints = [
        Unknown() if letter == GAP else Confident(LETTERS.index(letter), p)
        for letter, p in zip(read, sure, strict=True)
    ]
    tilt = torch.stack([log_likelihood([hint], chain.codebook) for hint in hints])
    exact = chain.tilt(tilt)(Endpoints(torch.full((1, 8), -1)))[0].softmax(-1)
    for i, letter in enumerate(found.repaired):
        assert found.posterior[i] == pytest.approx(float(exact[i, LETTERS.index(letter)]))
        for other, p in found.alternatives[i]:
            assert other != letter
            assert p == pytest.approx(float(exact[i, LETTERS.index(other)]))


def test_alternatives_are_the_likeliest_others_in_order() -> None:
    """Of the posterior before anything was decided, which later decisions change."""
    model = load("oracle:markov")
    read, sure = "ab_defab", [0.9, 0.5, 0.7, 0.6, 0.99, 0.3, 0.8, 0.4]
    found = mend(read, sure, model)
    hints = [
        Unknown() if letter == GAP else Confident(LETTERS.index(letter), p)
        for letter, p in zip(read, sure, strict=True)
    ]
    denoiser = given(model.denoiser, Evidence.of([hints], model.denoiser))
    before = denoiser(Endpoints(torch.full((1, 8), -1)))[0].softmax(-1)
    for p, letter, others in zip(before, found.repaired, found.alternatives, strict=True):
        best = [LETTERS[i] for i in p.argsort(descending=True) if LETTERS[i] != letter]
        assert [other for other, _ in others] == best[:ALTERNATIVES]
    after = leave_one_out(denoiser, torch.tensor([model.encode(found.repaired)]))[0]
    changed = (after - torch.tensor(found.posterior)).abs()
    assert float(changed.max()) > 0.05, "each decision changes the odds of the rest"


def test_a_certain_reader_is_believed() -> None:
    """With every letter certain nothing changes, however unlikely the text is."""
    text = "zqxj kv"
    found = mend(text, [1.0] * len(text))
    assert found.repaired == text and found.changes() == []


def test_gaps_and_changes_are_named() -> None:
    found = mend("th_ cat", [0.99] * 7)
    assert found.repaired == "the cat"
    assert found.changes() == [2] and found.confidence[2] == 0


@pytest.mark.parametrize(
    "read, sure, message",
    [
        ("abc", [0.5, 0.5], "a number for each of the 3 letters, got 2"),
        ("abc", [0.5, 1.5, 0.5], "confidence must lie in 0 … 1, got 1.5"),
        ("aßc", [0.5] * 3, "outside the model's vocabulary: 'ß'"),
    ],
)
def test_mistakes_are_explained(read: str, sure: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mend(read, sure)


def test_a_model_without_continuous_states_takes_no_confidence() -> None:
    with pytest.raises(ValueError, match="it takes no confidences"):
        mend("abc", [0.5] * 3, load("text8-tiny-mdlm"))
