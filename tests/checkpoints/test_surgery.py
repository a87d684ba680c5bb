"""Causal to masked to localized: the weights stay, and with the mask put back so do the logits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from dsl.checkpoints.convert import convert_masked, convert_mdlm
from dsl.checkpoints.llama import Vocabulary, convert_llama, read_llama2c
from dsl.checkpoints.loading import load
from dsl.checkpoints.surgery import at_endpoints, causal_parity, localized, masked, masked_parity
from dsl.cli.main import main
from dsl.core import sphere
from dsl.core.denoiser import Endpoints
from dsl.core.types import MASK
from dsl.families.registry import FAMILIES
from dsl.models.config import ModelConfig
from tests.conftest import assert_near, assert_unit_norm, perturbed
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
    assert_unit_norm(moved)


def test_too_many_rows_cannot_be_apart() -> None:
    with pytest.raises(ValueError, match="cannot all have cosines below"):
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
    with pytest.raises(ValueError, match="basic symbols and an end"):
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
        (["it", "out", "--keep", "100"], "--keep and --text must be given together"),
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


@pytest.mark.parametrize("values", ["table", "unit"])
def test_a_dsl_model_at_its_endpoints_is_a_masked_model(values: Literal["table", "unit"]) -> None:
    """Logits agree wherever tokens are masked or known; [MASK] itself is never predicted."""
    model = perturbed(
        ModelConfig(7, codebook_dim=6, values=values, hidden_dim=16, cond_dim=4, n_blocks=2,
                    n_heads=2, model_length=9)
    )  # fmt: skip
    made = at_endpoints(model)
    state = Endpoints(torch.randint(MASK, 7, (20, 9)))
    assert (state.tokens == MASK).any() and (state.tokens >= 0).any()
    with torch.no_grad():
        assert_near(made(state), model(state))


def test_what_cannot_be_masked_is_refused(tmp_path: Path) -> None:
    shape = {"hidden_dim": 16, "cond_dim": 4, "n_blocks": 1, "n_heads": 2, "codebook_dim": 6}
    for model in (
        perturbed(ModelConfig(7, evidence_logits=True, **shape)),
        perturbed(ModelConfig(7, backbone="encoder", **shape)),
    ):
        with pytest.raises(ValueError, match="only a DSL model with DiT blocks"):
            at_endpoints(model)
    with pytest.raises(ValueError, match="text8-tiny-ar is not a DSL model"):
        convert_masked("text8-tiny-ar", tmp_path / "out")


def test_the_command_makes_a_masked_model_that_can_be_trained_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", "masked", "text8-tiny", str(tmp_path / "masked")]) == 0
    assert "2,9" in capsys.readouterr().out
    made = load(tmp_path / "masked")
    assert made.family.name == "mdlm"
    tokens = torch.randint(MASK, 27, (2, 32))
    with torch.no_grad():
        assert_near(
            made.denoiser(Endpoints(tokens)), load("text8-tiny").denoiser(Endpoints(tokens))
        )
