"""What a table of measures says: whose row it is, where texts end, and what is asked first."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from dsl.data.tokenizers import byte_level, mdlm_text8
from dsl.evaluation.comparison import Cell, markdown, summarise
from dsl.evaluation.mauve import silenced_stderr
from dsl.evaluation.measurement import JudgeSettings, evaluate
from dsl.evaluation.suite import Measure, Reference, Settings


def test_a_row_is_named_by_its_model_and_its_path() -> None:
    result: dict[str, Any] = {"nfe": {"mean": 4.0}, "tokens_per_second": 1.0, "scores": {}}
    (row,) = summarise({Cell("mine", "mdlm@T", "mdlm@4", 0): result})
    assert (row["model"], row["sampler"], row["path"]) == ("mine", "mdlm@T", "mdlm@4")
    assert "| mine | mdlm@4 | 4.0 |" in markdown([row], {})


def test_an_end_inside_a_text_is_counted_and_those_around_it_are_not() -> None:
    tokenizer = mdlm_text8()
    measure = Measure(Settings(ngram=1), Reference("none", ["a"], ["a"]), tokenizer)
    begin, end, a = (tokenizer.token_to_id(s) for s in ("[BOS]", "[EOS]", "a"))
    plain, early = [begin, a, a, a, end], [begin, a, end, a, end]
    rate = measure.texts(["aaa"] * 4, [plain, plain, early, plain])["end_rate"]["mean"]
    assert rate == pytest.approx(1 / 4)


def test_texts_without_ends_have_no_rate_of_them() -> None:
    measure = Measure(Settings(ngram=1), Reference("none", ["a"], ["a"]), byte_level())
    assert "end_rate" not in measure.texts(["ab"], [[97, 98]])


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("seeds", 1, 1000), ("resamples", 0, 10**4), ("novelty", 1, 10**6), ("buckets", 1, 10**6)],
)
def test_settings_have_limits(name: str, least: int, most: int) -> None:
    for value in (least, most):
        JudgeSettings(reference="python-docs", **{name: value}).check()  # type: ignore[arg-type]
    for value in (least - 1, most + 1):
        with pytest.raises(ValueError, match=name):
            JudgeSettings(reference="python-docs", **{name: value}).check()  # type: ignore[arg-type]


def test_a_judge_that_is_not_there_is_refused_before_the_samples_are_read(tmp_path: Path) -> None:
    settings = JudgeSettings(reference="python-docs", judge=str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match="no model directory"):
        evaluate(tmp_path / "no-samples.jsonl", settings)


def test_what_compiled_code_says_is_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    with silenced_stderr():
        os.write(2, b"few points in a cluster\n")
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "after\n"
