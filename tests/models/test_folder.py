"""A checkpoint directory is whole, unchanged, and made of finite numbers, or it is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

from dsl._util.files import digest
from dsl.checkpoints.loading import BUNDLED, bundled
from dsl.models import folder
from dsl.models.dsl import DSLModel


def test_weights_that_changed_are_refused(model: DSLModel, tmp_path: Path) -> None:
    """By one bit; but models that were written without a checksum are still read."""
    model.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    content = bytearray(path.read_bytes())
    assert "weights_sha256" not in folder.read_config(tmp_path)
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="have changed since they were written"):
        DSLModel.from_pretrained(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(json.dumps(folder.read_config(tmp_path)))
    DSLModel.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda t: t.to(torch.int8), "converter.bias is of type torch.int8, expected"),
        (lambda t: t > 0, "converter.bias is of type torch.bool, expected"),
        (lambda t: t.to(torch.complex64), "converter.bias is of type torch.complex64"),
        (lambda t: t * torch.nan, "converter.bias holds values that are not finite"),
        (lambda t: t.half() + torch.inf, "converter.bias holds values that are not finite"),
    ],
)
def test_weights_are_finite_floating_numbers(
    model: DSLModel, tmp_path: Path, change: Any, message: str
) -> None:
    tensors = model.state_dict()
    tensors["converter.bias"] = change(tensors["converter.bias"])
    folder.save(tmp_path, model.config.to_dict(), tensors)
    with pytest.raises(ValueError, match=message):
        DSLModel.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    "error", [SafetensorError("I/O error: No space left"), OSError(28, "No space left")]
)
def test_a_full_disk_leaves_the_old_model(
    model: DSLModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    model.save_pretrained(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(_: object, path: Path, **__: object) -> None:
        path.write_bytes(b"half")
        raise error

    monkeypatch.setattr(folder, "save_file", full)
    with pytest.raises(OSError, match=r"could not be written \([^()]*No space left\)"):
        model.save_pretrained(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    "content, message",
    [
        (b'{"a":' * 100_000, "is not JSON"),
        (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
        (b'{"vocab_size": 11, "vocab_size": 12}', "duplicate key 'vocab_size'"),
        (b'{"vocab_size": ' + b"9" * 5000 + b"}", "is not JSON"),
        (b'{"vocab_size": ' + b"9" * 500 + b"}", "smaller than 2.31, got 500 digits"),
        (b'{"vocab_size": 2000000000, "hidden_dim": 2000000000}', "than the .* can hold"),
        (b'{"vocab_size": 11, "beta": NaN}', "'beta' must be finite"),
        (b"\xff\xfe", "is not JSON"),
        (b"[]", "one JSON object, got list"),
    ],
)
def test_a_config_that_is_none_is_refused(
    model: DSLModel, tmp_path: Path, content: bytes, message: str
) -> None:
    model.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        DSLModel.from_pretrained(tmp_path)


def test_bundled_weights_are_as_they_were_written() -> None:
    for name in bundled():
        stored = json.loads((BUNDLED / name / folder.CONFIG).read_text())
        assert stored[folder.CHECKSUM] == digest(BUNDLED / name / folder.WEIGHTS), name
