from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import dsl
from dsl import loading
from dsl.cli.main import main
from dsl.data.tokenizers import characters
from dsl.models.config import ModelConfig
from tests.conftest import perturbed


def test_the_bundled_models_load_by_name() -> None:
    assert {"text8-tiny", "text8-tiny-mdlm", "text8-tiny-ar"} <= set(loading.bundled())
    for name in loading.bundled():
        model = dsl.load(name)
        assert model.decode(model.encode("the cat")) == "the cat"
        config = model.denoiser.config  # type: ignore[attr-defined]
        assert config.codebook_dim >= config.vocab_size - 1, "evidence is exact"
        assert all(p.dtype == torch.float32 for p in model.denoiser.parameters())  # type: ignore[attr-defined]
    assert dsl.load().name == loading.DEFAULT_MODEL


def test_the_bundled_model_has_learned_english() -> None:
    """Far better than letters by their frequencies (4.1 bits), on a text of our own."""
    text = (
        "the committee met in the old town hall to hear what the people of the village had to say"
    )
    bits = dsl.likelihood("text8-tiny", [text], length=len(text), budget=64)
    assert bits.bits_per_token("roar").mean < 3.5
    scrambled = "".join(text[i * 37 % len(text)] for i in range(len(text)))
    assert (
        dsl.likelihood("text8-tiny", [scrambled], length=len(text)).bits_per_token("roar").mean
        > 4.0
    )


def test_half_the_bytes_and_nearly_the_same_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, out = tmp_path / "own", tmp_path / "half"
    model = perturbed(ModelConfig(5, codebook_dim=4, hidden_dim=16, n_blocks=1, n_heads=2))
    model.save_pretrained(own)
    characters("abcde").save(str(own / "tokenizer.json"))
    assert main(["convert", "float16", str(own), str(out)]) == 0
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (own, out)]
    assert sizes[1] < 0.6 * sizes[0]
    assert json.loads((out / "config.json").read_text()) == model.config.to_dict()
    again = dsl.load(out)
    assert again.decode([0, 4]) == "ae"
    for name, tensor in model.state_dict().items():
        close = again.denoiser.state_dict()[name]  # type: ignore[attr-defined]
        torch.testing.assert_close(close, tensor, rtol=1e-3, atol=1e-6)
    assert main(["convert", "float16", str(own), str(out)]) == 1
    assert "not an empty directory" in capsys.readouterr().err
    assert main(["convert", "float16", "oracle:cyclic-7", str(tmp_path / "x")]) == 1
    assert "has no weights" in capsys.readouterr().err


def test_a_bundled_mdlm_is_converted_with_its_length_and_tokenizer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = loading.BUNDLED / "text8-tiny-mdlm", tmp_path / "out"
    assert main(["convert", "mdlm", str(source), str(out), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["parity_at_mask_bias_50"] < 1e-4
    model = dsl.load(out)
    assert model.length == 128
    assert model.encode("abc") == dsl.load("text8-tiny-mdlm").encode("abc")


def test_a_run_is_not_its_model_but_says_where_that_is(tmp_path: Path) -> None:
    for inner in ("checkpoints/step-00000001", "checkpoints/step-00000002"):
        (tmp_path / inner).mkdir(parents=True)
        (tmp_path / inner / "config.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match=r"did you mean .*step-00000002\?"):
        dsl.load(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match=r"did you mean .*model\?"):
        dsl.load(tmp_path)
