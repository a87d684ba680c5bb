from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import dsl
from dsl.data.tokenizers import mdlm_text8
from dsl.models.config import ModelConfig
from tests.conftest import perturbed
from tests.doubles import Double

pytest.importorskip("lm_eval", reason="the extra 'lm-eval' is not installed")

TASK = """
task: next_letter
dataset_path: json
dataset_kwargs: {data_files: {test: FILE}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
doc_to_choice: "{{choices}}"
target_delimiter: ""
metric_list: [{metric: acc}]
"""


def adapter() -> Any:
    from dsl.integrations.lm_eval import DslLM

    return DslLM(dsl.load("oracle:cyclic-7"), budget=112)  # every reveal count once


def request(*arguments: Any) -> Any:
    return SimpleNamespace(args=arguments)


def test_likelihoods_are_those_of_the_oracle() -> None:
    """Given its first letter a rotation is certain; the first letter costs log 7."""
    lm = adapter()
    sure, greedy = lm.loglikelihood([request("AB", "CDEFG")])[0]
    assert sure == pytest.approx(0.0, abs=1e-3)
    assert greedy
    wrong, greedy = lm.loglikelihood([request("AB", "DCEFG")])[0]
    assert wrong < -5 and not greedy
    (whole,) = lm.loglikelihood_rolling([request("CDEFGAB")])
    assert whole == pytest.approx(-1.9459, abs=0.01)
    assert lm.loglikelihood([request("ABCDEFG", "")]) == [(0.0, True)]


def test_writing_stops_where_it_is_told() -> None:
    lm = adapter()
    settings = {"until": ["F"], "max_gen_toks": 5}
    assert lm.generate_until([request("AB", settings)]) == ["CDE"]


def test_the_harness_runs_a_local_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import lm_eval
    from lm_eval.tasks import TaskManager

    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    letters = "ABCDEFG"
    rows = [
        {"question": (letters * 2)[i : i + 3], "choices": ["AFGB", (letters * 2)[i + 3 : i + 7]],
         "answer": 1}
        for i in range(7)
    ]  # fmt: skip
    file = tmp_path / "rows.json"
    file.write_text("\n".join(json.dumps(row) for row in rows))
    (tmp_path / "next_letter.yaml").write_text(TASK.replace("FILE", str(file)))
    manager = TaskManager(include_path=str(tmp_path), include_defaults=False)
    found = lm_eval.simple_evaluate(
        model=adapter(), tasks=["next_letter"], task_manager=manager, bootstrap_iters=0
    )
    assert found["results"]["next_letter"]["acc,none"] == 1.0


def test_blocks_with_ends_are_scored_as_they_were_trained(tmp_path: Path) -> None:
    """Every token of the continuation is scored, once, between the specials of its block."""
    from dsl.integrations.lm_eval import DslLM

    tokenizer = mdlm_text8()
    perturbed(
        ModelConfig(
            34, codebook_dim=33, hidden_dim=16, cond_dim=4, n_blocks=1, n_heads=2, model_length=12
        )
    ).save_pretrained(tmp_path)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    lm = DslLM(str(tmp_path), budget=400)
    asked: list[list[int]] = []
    inner = lm.model.denoiser

    class Spy(Double):
        codebook, snr_max = inner.codebook, inner.snr_max

        def __call__(self, z: Any, /, *, at: Any = None) -> Any:
            asked.append(list(z.tokens.shape))
            return inner(z, at=at)

    lm.model = replace(lm.model, denoiser=Spy())
    value, _ = lm.loglikelihood([request("the cat", " sat")])[0]
    assert -60 < value < 0
    assert sorted({shape[1] for shape in asked[:-1]}) == [1 + 6 + 4 + 1], "the context is cut"
    assert len(lm.generate_until([request("x" * 40, {"max_gen_toks": 5})])[0]) <= 5
    (rolled,) = lm.loglikelihood_rolling([request("abcdefghijklmno")])
    assert rolled < value
    whole, _ = lm.loglikelihood([request("", "abcdefghij")])[0]
    assert whole < 0
    with pytest.raises(ValueError, match="11 tokens does not fit into 10"):
        lm.loglikelihood([request("", "abcdefghijk")])


def test_cleaning_keeps_the_space_between() -> None:
    from dsl.integrations.lm_eval import DslLM

    lm = DslLM("text8-tiny", budget=8, clean=True)
    assert lm.model.decode(lm._ids(" Paris!")) == " paris"
    value, _ = lm.loglikelihood([request("The capital of France is", " Paris.")])[0]
    assert -60 < value < 0
