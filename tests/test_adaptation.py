"""Causal to masked to localized: the weights stay, and with the mask put back so do the logits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from dsl import sphere
from dsl.adaptation import causal_parity, localized, masked, masked_parity
from dsl.cli.main import main
from dsl.conversion import convert_mdlm
from dsl.families.table import FAMILIES
from dsl.llama_conversion import Vocabulary, convert_llama
from dsl.loading import load
from dsl.models.llama_import import read_llama2c
from tests.llamas import llama2c, tokenizer_bin

WORDS = [" t", "he", " the", " c", "at", " cat", " s", " sat", "on", " on", "a", "."]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A llama2.c model and its tokenizer beside it."""
    table = tokenizer_bin(WORDS)
    pieces = 259 + sum(len(w) > 1 for w in WORDS) + len({c for w in WORDS for c in w})
    (tmp_path / "tokenizer.bin").write_bytes(table)
    path = tmp_path / "model.bin"
    path.write_bytes(llama2c(v=pieces))
    return path


def test_the_mask_put_back_gives_the_source() -> None:
    causal = read_llama2c(llama2c(), "it").causal()
    assert causal_parity(causal, masked(causal)) < 1e-5
    assert causal_parity(causal, localized(causal, codebook_dim=24)) < 1e-4


def test_at_the_endpoints_a_localized_network_is_the_masked_one() -> None:
    source = masked(read_llama2c(llama2c(), "it").causal())
    with torch.no_grad():
        source.vocab_embed.embedding[-1] += 1.0  # a mask of its own
    near = localized(source, codebook_dim=24, mask_probability=0.99)
    sure = localized(source, codebook_dim=24, mask_probability=1 - 1e-9)
    assert masked_parity(source, sure) < 1e-4
    assert masked_parity(source, sure) < masked_parity(source, near) < 0.2


def test_small_vocabularies_get_a_simplex() -> None:
    causal = read_llama2c(llama2c(v=40), "it").causal()
    assert localized(causal).config.codebook == "simplex"
    assert causal_parity(causal, localized(causal)) < 1e-4


def test_rows_that_coincide_are_set_apart_and_others_stay() -> None:
    table = sphere.random(50, 16, generator=torch.Generator().manual_seed(0))
    table[7] = table[3]
    table[9] = table[3]
    moved = sphere.apart(table, 0.9, generator=torch.Generator().manual_seed(1))
    assert (moved @ moved.T).tril(-1).max() <= 0.9
    others = [i for i in range(50) if i not in (7, 9)]
    assert torch.equal(moved[others], table[others])
    sphere.require_unit_norm(moved)


def test_too_many_rows_cannot_be_apart() -> None:
    with pytest.raises(ValueError, match="cannot all be apart"):
        sphere.apart(sphere.circle(40), 0.9)


@pytest.mark.parametrize("kind", ["ar", "mdlm", "dsl"])
def test_the_command_makes_models_that_can_be_used(
    source: Path, tmp_path: Path, kind: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["convert", "llama", str(source), str(out), "--family", kind, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["kind"] == kind and told["parity"] < 1e-4
    model = load(out)
    assert model.family.name == kind
    assert model.decode(model.encode("the cat sat on the cat.")) == "the cat sat on the cat."
    sampler = ["--sampler", "causal"] if kind == "ar" else []
    assert main(["sample", "--model", str(out), "--length", "8", *sampler]) == 0


def test_a_vocabulary_can_be_cut(source: Path, tmp_path: Path) -> None:
    """What is kept has the old embeddings and spells the text as before."""
    text = tmp_path / "text.txt"
    text.write_text("the cat sat.")
    whole = tmp_path / "whole"
    convert_llama(source, whole, kind="ar")
    with pytest.raises(ValueError, match="signs that spell everything"):
        convert_llama(source, tmp_path / "small", kind="ar", keep=Vocabulary(3, text))
    made = convert_llama(source, tmp_path / "cut", kind="ar", keep=Vocabulary(275, text))
    assert made.vocabulary < made.of
    old, new = load(whole), load(tmp_path / "cut")
    before, after = old.encode("the cat sat."), new.encode("the cat sat.")
    rows, kept = old.denoiser.embedding, new.denoiser.embedding
    assert torch.equal(rows[before], kept[after])


def test_masked_models_of_ours_become_localized(source: Path, tmp_path: Path) -> None:
    convert_llama(source, tmp_path / "mdlm", kind="mdlm")
    made = convert_mdlm(tmp_path / "mdlm", tmp_path / "dsl", mask_probability=0.999)
    assert made.parity_at_mask_bias_50 < 1e-4
    assert load(tmp_path / "dsl").family is FAMILIES["dsl"]
    assert load(tmp_path / "dsl").encode("the cat") == load(tmp_path / "mdlm").encode("the cat")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.bin", "out"], "no checkpoint directory at 'nowhere.bin'"),
        (["teacher:gpt9", "out"], "unknown teacher 'teacher:gpt9'"),
        (["text8-tiny", "out"], "text8-tiny"),
        (["it", "out", "--keep", "100"], "--keep and --text belong together"),
    ],
)
def test_bad_sources_get_one_line(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["convert", "llama", *arguments]) != 0
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error
    assert list(tmp_path.iterdir()) == []
