from __future__ import annotations

from pathlib import Path

import pytest
import torch

import dsl
from dsl.checkpoints.loading import load
from dsl.conditioning.evidence import Allowed, Confident, Known, Unknown
from dsl.data import tokenizers
from dsl.generation.engine import generate, infill
from dsl.models.config import ModelConfig
from tests.conftest import perturbed


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    config = ModelConfig(
        27, codebook_dim=26, hidden_dim=16, cond_dim=4, n_blocks=1, n_heads=2, model_length=16
    )
    perturbed(config).save_pretrained(tmp_path)
    tokenizers.characters("abcdefghijklmnopqrstuvwxyz ").save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_five_lines(checkpoint: Path) -> None:
    samples = dsl.generate(checkpoint, n=3, length=12, sampler="mdlm@8", seed=1)
    assert [len(sample.text) for sample in samples] == [12] * 3
    filled = dsl.infill("the [4] is", checkpoint, n=2)
    assert all(s.text.startswith("the ") and s.text.endswith(" is") for s in filled)


def test_a_text_is_determined_by_seed_and_index() -> None:
    whole = generate("oracle:markov", n=7, sampler="remdm-cap@9", seed=3, batch_size=7)
    cut = generate("oracle:markov", n=7, sampler="remdm-cap@9", seed=3, batch_size=2)
    assert [s.text for s in whole] == [s.text for s in cut]
    assert [s.nfe for s in whole] == [s.nfe for s in cut]
    assert [s.text for s in generate("oracle:markov", n=3, sampler="remdm-cap@9", seed=3)] == [
        s.text for s in whole[:3]
    ]


def test_prompts_of_unequal_length_share_a_batch() -> None:
    rows = [
        [Known(0), *[Unknown()] * 6],
        [Known(3), Known(4), Known(5), *[Unknown()] * 4],
        [*[Unknown()] * 6, Known(0)],
    ]
    texts = [s.text for s in generate("oracle:cyclic-7", n=3, sampler="roar", hints=rows)]
    assert texts == ["ABCDEFG", "DEFGABC", "BCDEFGA"]


def test_hints_of_all_kinds() -> None:
    hints = [Allowed((0, 1)), Confident(2, 0.95), *[Unknown()] * 5]
    texts = [s.text for s in generate("oracle:cyclic-7", n=50, sampler="roar", hints=hints)]
    assert set(texts) <= {"ABCDEFG", "BCDEFGA"}
    assert texts.count("BCDEFGA") > 30  # the confident C agrees with B first


def test_infilling_toys() -> None:
    assert infill("AB[3]FG", "oracle:cyclic-7")[0].text == "ABCDEFG"
    assert infill("[1]1", "oracle:two-bit")[0].text == "11"
    assert infill("ab[10]cd", "oracle:markov")[0].text[:2] == "ab"


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: generate("oracle:cyclic-99"), "K in 2 … 26, got 99"),
        (lambda: generate("oracle:nothing"), "unknown oracle 'oracle:nothing'; expected"),
        (lambda: generate("oracle:cyclic-7", length=9), "needs length 7, got 9"),
        (lambda: generate(n=0), "n must be at least 1"),
        (lambda: generate(batch_size=0), "batch_size must be at least 1"),
        (lambda: generate(sampler="mdlm@8:top_p=0"), "top_p must lie in"),
        (lambda: generate(hints=[]), "at least one position"),
        (lambda: generate("text8-tiny", hints=[Known(99)]), "ids must lie in 0 … 26"),
        (lambda: generate(hints=[Allowed(())]), "at least one token"),
        (lambda: generate(hints=[(Known(0), Known(1))]), "position 0 contradicts itself"),
        (lambda: generate(hints=[Unknown()] * 3, length=4), "differs from the 3 hints"),
        (lambda: generate(n=3, hints=[[Unknown()], [Unknown()]]), "one sequence or all 3"),
        (lambda: infill("ABC", "oracle:cyclic-7"), "has no gap"),
        (lambda: infill("xy[5]", "oracle:cyclic-7"), "outside the model's vocabulary: 'xy'"),
        (lambda: infill("AB[6]", "oracle:cyclic-7"), "needs length 7, got 8"),
        (lambda: infill("AB[9]", "oracle:cyclic-7"), r"1 to 7 tokens, got \[9\]"),
        (lambda: infill("AB[0]", "oracle:cyclic-7"), r"tokens, got \[0\]"),
        (lambda: infill("a[999999999]", "oracle:markov"), r"tokens, got \[999999999\]"),
        (lambda: infill(f"a[{'9' * 5000}]"), r"tokens, got \[999999999999…\]"),
        (lambda: infill("AB[x]FG", "oracle:cyclic-7"), r"written as its length, .* got \[x\]"),
    ],
)
def test_mistakes_are_explained_before_any_forward(
    call: object, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object, **__: object) -> torch.Tensor:
        raise AssertionError("the denoiser was asked")

    for oracle in (dsl.core.oracle.Markov, dsl.core.oracle.Enumerated):
        monkeypatch.setattr(oracle, "__call__", forbidden)
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]


def test_a_length_beyond_the_models_is_refused(checkpoint: Path) -> None:
    with pytest.raises(ValueError, match="at most 16 tokens, got length 17"):
        generate(checkpoint, length=17)


def test_a_tokenizer_of_another_size_is_refused(checkpoint: Path) -> None:
    tokenizers.characters("abc").save(str(checkpoint / "tokenizer.json"))
    with pytest.raises(ValueError, match="has 3 tokens, the model beside it 27"):
        load(checkpoint)
    (checkpoint / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="is not a tokenizer"):
        load(checkpoint)


def test_without_a_tokenizer_there_are_only_numbers(checkpoint: Path) -> None:
    (checkpoint / "tokenizer.json").unlink()
    assert generate(checkpoint, length=2)[0].text.replace(" ", "").isdigit()
    with pytest.raises(ValueError, match=r"has no tokenizer\.json"):
        infill("a[3]", checkpoint)
