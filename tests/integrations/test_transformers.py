from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dsl.cli.main import main
from dsl.core.denoiser import Endpoints
from dsl.core.types import MASK
from dsl.data.tokenizers import characters
from dsl.models.config import ModelConfig
from tests.conftest import assert_near, perturbed

transformers = pytest.importorskip(
    "transformers", reason="the extra 'transformers' is not installed"
)

CONFIG = ModelConfig(5, codebook_dim=4, hidden_dim=16, cond_dim=4, n_blocks=2, n_heads=2)


@pytest.fixture
def exported(tmp_path: Path) -> tuple[Path, Path]:
    own, out = tmp_path / "own", tmp_path / "out"
    perturbed(CONFIG).save_pretrained(own)
    characters("abcd ").save(str(own / "tokenizer.json"))
    assert main(["export", str(own), str(out)]) == 0
    return own, out


@torch.no_grad()
def test_auto_classes_answer_as_the_model_does(exported: tuple[Path, Path]) -> None:
    import dsl

    own, out = exported
    ours = dsl.load(own).denoiser
    for kind in (transformers.AutoModel, transformers.AutoModelForMaskedLM):
        theirs = kind.from_pretrained(out).eval()
        ids = torch.tensor([[0, 5, 2, 5, 4]])
        masked = ids.masked_fill(ids == 5, MASK)
        assert_near(theirs(input_ids=ids).logits, ours(Endpoints(masked)))
        z = torch.randn(2, 5, 4)
        assert_near(theirs(z=z).logits, ours(z))
    labels = torch.tensor([[-100, 1, -100, 3, -100]])
    wanted = ours(Endpoints(masked))[0, [1, 3]].log_softmax(-1)
    loss = theirs(input_ids=ids, labels=labels).loss
    assert_near(loss, -(wanted[0, 1] + wanted[1, 3]) / 2)
    with pytest.raises(ValueError, match="either input_ids"):
        theirs()
    with pytest.raises(ValueError, match="padding is not supported"):
        theirs(input_ids=ids, attention_mask=torch.tensor([[1, 1, 1, 1, 0]]))
    assert torch.equal(theirs(input_ids=ids, return_dict=False)[0], theirs(input_ids=ids).logits)


def test_the_tokenizer_knows_the_mask(exported: tuple[Path, Path]) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported[1])
    assert tokenizer("a[MASK]d").input_ids == [0, 5, 3]
    assert tokenizer.mask_token_id == 5


@pytest.mark.slow
def test_a_fresh_process_needs_only_trust(exported: tuple[Path, Path], tmp_path: Path) -> None:
    code = (
        "from transformers import AutoModelForMaskedLM as A; import torch;"
        f"m = A.from_pretrained({str(exported[1])!r}, trust_remote_code=True);"
        "print(m(input_ids=torch.tensor([[0, 5]])).logits.shape)"
    )
    environment = {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1", "PATH": "/usr/bin"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert "torch.Size([1, 2, 5])" in done.stdout


def test_what_cannot_be_exported(
    exported: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, out = exported
    assert main(["export", str(own), str(out)]) == 1
    assert "not an empty directory" in capsys.readouterr().err
    assert main(["export", "oracle:cyclic-7", str(tmp_path / "x")]) == 1
    assert "export needs a DSL model" in capsys.readouterr().err
    assert json.loads((out / "config.json").read_text())["model_type"] == "dsl"
