"""The example plug-in: once installed, dsl finds its family, its sampler and its corpus."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

PLUGIN = Path(__file__).parent.parent / "examples" / "dsl-plugin"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the installed plug-in."""
    pytest.importorskip("hatchling", reason="hatchling is not installed")
    folder = tmp_path_factory.mktemp("site")
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    options += ["--disable-pip-version-check", "--target", str(folder)]
    python("-m", "pip", "install", *options, str(PLUGIN))
    return folder


@pytest.fixture(scope="module")
def model(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the plug-in's family, trained on the plug-in's corpus."""
    run = tmp_path_factory.mktemp("runs") / "unigram"
    changes = ["--set", "objective=unigram", "--set", "data.corpus=sums"]
    dsl(site, "train", "text8-tiny", "--smoke", *changes, "--out", str(run))
    return run / "model"


def python(*words: str, **variables: str) -> str:
    """Run Python in a process of its own and return what it prints."""
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, env={**os.environ, **variables}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def dsl(site: Path, *words: str) -> str:
    """Run dsl where the plug-in is installed."""
    return python("-m", "dsl", *words, PYTHONPATH=str(site), DSL_CACHE=str(site / "cache"))


def test_the_family_is_trained_on_the_corpus(model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    assert config["kind"] == "unigram"
    assert config["vocab_size"] == len("0123456789+=;")
    assert load_file(model / "model.safetensors")["logits"].any()  # it begins with zeros


def test_the_sampler_draws_from_the_model(site: Path, model: Path) -> None:
    words = ["sample", "-n", "2", "--model", str(model), "--sampler", "left-to-right@4"]
    texts = dsl(site, *words).split()
    assert [len(text) for text in texts] == [32, 32]
    assert set("".join(texts)) <= set("0123456789+=;")


def test_the_sampler_is_exact_with_one_token_a_step(site: Path) -> None:
    words = ["-n", "40", "--model", "oracle:cyclic-7", "--sampler", "left-to-right@7"]
    texts = dsl(site, "sample", *words).split()
    assert len(texts) == 40
    assert all(text in "ABCDEFGABCDEFG" for text in texts)
    assert len(set(texts)) > 3


def test_the_format_is_read(site: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.txt"
    page.write_text("the\t1.0\nhistory\t0.9\nof\t1.0\nrome\t1.0\n")
    shown = dsl(
        site, "correct", str(page), "--to", "text", "--threshold", "1", "--format", "word-lines"
    )
    assert shown.rstrip("\n") == "the history of rome"


def test_without_the_package_its_names_are_unknown(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="unknown sampler 'left-to-right'"):
        dsl(tmp_path, "sample", "--model", "oracle:cyclic-7", "--sampler", "left-to-right@7")
