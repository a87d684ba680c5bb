"""The example plug-in: once installed, dsl finds its family, its sampler and its corpus."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from safetensors.torch import load_file

from dsl.cli.main import main

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


COMMANDS = """
import io, json, sys
from contextlib import redirect_stdout
from dsl.cli.main import main
outputs = {}
for name, words in json.loads(sys.argv[1]).items():
    with redirect_stdout(io.TextIOWrapper(io.BytesIO(), write_through=True)) as out:
        assert main(words) == 0, words
    outputs[name] = out.buffer.getvalue().decode()
print(json.dumps(outputs))
"""
"""Runs several commands in one process and prints their outputs."""


@dataclass(frozen=True)
class Run:
    """A model of the plug-in's family, and the outputs of commands that use the plug-in."""

    model: Path
    outputs: dict[str, str]


@pytest.fixture(scope="module")
def run(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Train on the plug-in's corpus, sample and correct, where the plug-in is installed."""
    folder = tmp_path_factory.mktemp("runs")
    page, model = folder / "page.txt", folder / "unigram" / "model"
    page.write_text("the\t1.0\nhistory\t0.9\nof\t1.0\nrome\t1.0\n")
    train = "train text8-tiny --smoke --set objective=unigram --set data.corpus=sums --out"
    oracle = "sample -n 40 --model oracle:cyclic-7 --sampler left-to-right@7"
    correct = f"correct {page} --to text --threshold 1 --format word-lines"
    commands = {
        "train": [*train.split(), str(model.parent)],
        "sample": f"sample -n 2 --model {model} --sampler left-to-right@4".split(),
        "oracle": oracle.split(),
        "correct": correct.split(),
    }
    variables = {"PYTHONPATH": str(site), "DSL_CACHE": str(site / "cache")}
    printed = python("-c", COMMANDS, json.dumps(commands), **variables)
    return Run(model, json.loads(printed.splitlines()[-1]))


def python(*words: str, **variables: str) -> str:
    """Run Python in a separate process and return what it prints."""
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, env={**os.environ, **variables}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_family_is_trained_on_the_corpus(run: Run) -> None:
    config = json.loads((run.model / "config.json").read_text())
    assert config["kind"] == "unigram"
    assert config["vocab_size"] == len("0123456789+=;")
    assert load_file(run.model / "model.safetensors")["logits"].any()  # it begins with zeros


def test_the_sampler_draws_from_the_model(run: Run) -> None:
    texts = run.outputs["sample"].split()
    assert [len(text) for text in texts] == [32, 32]
    assert set("".join(texts)) <= set("0123456789+=;")


def test_the_sampler_is_exact_with_one_token_a_step(run: Run) -> None:
    texts = run.outputs["oracle"].split()
    assert len(texts) == 40
    assert all(text in "ABCDEFGABCDEFG" for text in texts)
    assert len(set(texts)) > 3


def test_the_format_is_read(run: Run) -> None:
    assert run.outputs["correct"].rstrip("\n") == "the history of rome"


def test_without_the_package_its_names_are_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sample", "--model", "oracle:cyclic-7", "--sampler", "left-to-right@7"]) == 1
    assert "unknown sampler 'left-to-right'" in capsys.readouterr().err
