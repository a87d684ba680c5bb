from __future__ import annotations

import json
import re
import shutil
from dataclasses import fields
from pathlib import Path

import pytest
import torch

import dsl
from dsl._util.defaults import DEFAULT_MODEL
from dsl._util.files import digest
from dsl.checkpoints import loading as loading
from dsl.cli.main import main
from dsl.core.denoiser import Clocked, Continuous
from dsl.data.tokenizers import characters
from dsl.families.registry import FAMILIES
from dsl.models import folder
from dsl.models.config import ModelConfig
from tests.conftest import perturbed

KINDS = {
    "stories-tiny": "dsl",
    "stories-tiny-mdlm": "mdlm",
    "english-tiny": "dsl",
    "text8-tiny": "dsl",
    "text8-tiny-20m": "dsl",
    "text8-tiny-mdlm": "mdlm",
    "text8-tiny-ar": "ar",
    "text8-tiny-vp": "vp",
}


def test_the_bundled_models_load_by_name() -> None:
    assert set(loading.bundled()) == set(KINDS)
    for name in loading.bundled():
        model = dsl.load(name)
        assert model.decode(model.encode("the cat")) == "the cat"
        assert model.family is FAMILIES[KINDS[name]]
        if {Continuous, Clocked} & set(model.protocol.__mro__) and model.vocab_size < 1000:
            assert model.denoiser.codebook.shape[1] >= model.vocab_size - 1, "evidence is exact"
        assert all(weight.dtype == torch.float32 for weight in model.denoiser.parameters())
    assert dsl.load().name == DEFAULT_MODEL


@pytest.mark.parametrize("name", ["stories-tiny", "english-tiny", "text8-tiny"])
def test_models_that_are_shown_have_a_card(name: str) -> None:
    """What it learned from, under which licence, by which command, and what it is not."""
    card = (loading.directory(name) / "README.md").read_text()
    assert all(word in card for word in ("icence", "dsl train", "What it is not"))


@pytest.mark.slow
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
    described = json.loads((out / "config.json").read_text())
    assert described.pop("kind") == "dsl"
    assert described.pop(folder.CHECKSUM) == digest(out / folder.WEIGHTS)
    assert described == model.config.to_dict()
    again = dsl.load(out)
    assert again.decode([0, 4]) == "ae"
    for name, tensor in model.state_dict().items():
        close = again.denoiser.state_dict()[name]
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
    run = tmp_path / "run"
    (run / "model").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match=r"run is not a checkpoint: it has no config.json$"):
        dsl.load(run)
    (run / "recipe.yaml").write_text("")
    (run / "model" / "tokenizer.json").write_text("{}")
    for path in (run, run / "model"):
        with pytest.raises(FileNotFoundError, match=r"run .*has not finished and has no checkp"):
            dsl.load(path)
    for step in ("step-00000001", "step-00000002"):
        (run / "checkpoints" / step).mkdir(parents=True)
        (run / "checkpoints" / step / "config.json").write_text("{}")
    (run / "checkpoints" / "step-00000003").mkdir()
    newest = re.escape(f"{run} is a training run that has not finished: use {run}/checkpoints/step")
    for path in (run, run / "model"):
        with pytest.raises(FileNotFoundError, match=rf"^{newest}-00000002$"):
            dsl.load(path)
    (run / "model" / "config.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match=r"run is a training run: use its model, .*model$"):
        dsl.load(run)


@pytest.mark.parametrize("name", KINDS)
def test_models_written_before_families_still_load(name: str, tmp_path: Path) -> None:
    """All kinds shared one config of sixteen keys then, and no file had a checksum."""
    config = json.loads((loading.BUNDLED / name / folder.CONFIG).read_text())
    config.pop(folder.CHECKSUM, None)
    shared = {field.name: field.default for field in fields(ModelConfig)}
    own = tmp_path / "own"
    shutil.copytree(loading.BUNDLED / name, own)
    (own / folder.CONFIG).write_text(json.dumps(shared | config))
    ours, theirs = dsl.load(own), dsl.load(name)
    assert ours.family is theirs.family and ours.denoiser.config == theirs.denoiser.config
    for key, tensor in theirs.denoiser.state_dict().items():
        assert torch.equal(ours.denoiser.state_dict()[key], tensor)
    (own / folder.CONFIG).write_text(json.dumps(shared | config | {"hiden_dim": 3}))
    with pytest.raises(ValueError, match="unknown key 'hiden_dim'"):
        dsl.load(own)


def test_a_config_without_a_kind_is_of_a_dsl_model(tmp_path: Path) -> None:
    perturbed(ModelConfig(5, codebook_dim=4, hidden_dim=16, n_blocks=1, n_heads=2)).save_pretrained(
        tmp_path
    )
    config = json.loads((tmp_path / folder.CONFIG).read_text())
    config.pop("kind", None)
    (tmp_path / folder.CONFIG).write_text(json.dumps(config))
    assert dsl.load(tmp_path).family is FAMILIES["dsl"]


@pytest.mark.parametrize("kind", ["rnn", "", [], {}, None, 5, ["dsl"]])
def test_a_model_of_unknown_kind_is_refused(
    kind: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own"
    shutil.copytree(loading.BUNDLED / "text8-tiny-ar", own)
    config = json.loads((own / folder.CONFIG).read_text())
    (own / folder.CONFIG).write_text(json.dumps(config | {"kind": kind}))
    with pytest.raises(ValueError, match=r"the kind of model in .* must be one of adlm, ar, "):
        dsl.load(own)
    assert main(["sample", "--model", str(own)]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_weights_of_one_kind_are_not_those_of_another(tmp_path: Path) -> None:
    own = tmp_path / "own"
    shutil.copytree(loading.BUNDLED / "text8-tiny-mdlm", own)
    config = json.loads((own / folder.CONFIG).read_text())
    (own / folder.CONFIG).write_text(json.dumps({**config, "kind": "ar"}))
    with pytest.raises(ValueError, match=r"(does not fit its config.json|unknown key)"):
        dsl.load(own)
