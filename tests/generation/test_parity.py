"""The same call gives the same text in Python and in the shell, whatever the options are."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from dsl.checkpoints import load
from dsl.cli.main import main
from dsl.cli.sample import Options
from dsl.conditioning import Allowed, Confident, Known, NBest, Observed, Unknown
from dsl.data import tokenizers
from dsl.generation import DrawOptions, InfillOptions, SampleOptions, generate, infill, read_hints
from dsl.models import ModelConfig
from tests.conftest import perturbed

VALUES: dict[str, Any] = {
    "n": 3,
    "sampler": "roar",
    "temperature": 0.5,
    "top_p": 0.5,
    "guidance": 1.5,
    "seed": 7,
    "batch_size": 2,
    "length": 11,
    "prompt": "the ",
    "suffix": " of",
    "match": "[a-m ]*",
    "stride": 8,
    "ending": "unknown",
}
"""A value for every option, other than its default; `ending` has one that fits all models."""

HINTS: dict[str, Any] = {
    "unknown": None,
    "known": "a",
    "token": {"token": "a"},
    "confident": {"token": "a", "confidence": 0.8},
    "observed": {"token": "a", "snr": 5.0},
    "allowed": {"allowed": ["x", "y"]},
    "n-best": {"n_best": {"a": 0.6, "b": 0.3}},
    "several": [{"n_best": {"a": 0.6, "b": 0.3}}, {"allowed": ["b", "c"]}],
}
"""A hint of every form."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small network that is trained on nothing."""
    folder = tmp_path_factory.mktemp("model")
    config = ModelConfig(
        27, codebook_dim=26, hidden_dim=16, cond_dim=4, n_blocks=1, n_heads=2, model_length=16
    )
    perturbed(config).save_pretrained(folder)
    tokenizers.characters("abcdefghijklmnopqrstuvwxyz ").save(str(folder / "tokenizer.json"))
    return str(folder)


def flags(options: dict[str, Any]) -> list[str]:
    """Write options as words of a command line."""
    found: list[str] = []
    for name, value in options.items():
        found += ["-n" if name == "n" else f"--{name.replace('_', '-')}", str(value)]
    return found


Shell = Callable[..., list[str]]


@pytest.fixture
def shell(model: str, capsys: pytest.CaptureFixture[str]) -> Shell:
    """A function that runs a command with the model and returns its texts."""

    def run(*words: str) -> list[str]:
        assert main([*words, "--model", model, "--json"]) == 0, capsys.readouterr().err
        found: list[str] = json.loads(capsys.readouterr().out)["samples"]
        return found

    return run


def test_every_option_has_a_value_here() -> None:
    names = {field.name for kind in (SampleOptions, InfillOptions) for field in fields(kind)}
    assert names == set(VALUES)
    own = set(inspect.signature(generate).parameters) - names
    assert own == {"model", "prompts", "hints"}  # tested below
    assert {name for name in own if name not in {f.name for f in fields(Options)}} == set()


@pytest.mark.parametrize("name", [field.name for field in fields(SampleOptions)])
def test_sampling_is_the_same(name: str, model: str, shell: Shell) -> None:
    options = {"length": 12, "sampler": "mdlm@4", "n": 2, "prompt": "a"}
    if name == "match":
        options |= {"sampler": "causal", "prompt": "", "length": 6}
    if name == "stride":
        options |= {"length": 24}
    plain = dict(options)
    options |= {name: VALUES[name]}
    drawn = [sample.text for sample in generate(model, **options)]
    assert shell("sample", *flags(options)) == drawn
    assert len(drawn) == options["n"]
    if name not in ("n", "batch_size", "stride", "match"):  # the others change the text
        assert drawn != [sample.text for sample in generate(model, **plain)]


def test_hints_are_the_same(model: str, shell: Shell, tmp_path: Path) -> None:
    """Hints for all sequences, and hints of their own for each; the latter with a weight."""
    file = tmp_path / "hints.json"
    whole = [[*HINTS.values(), *[None] * 3]]
    each = [[hint, "t", *[None] * 6] for hint in HINTS.values()]
    for rows, options in ((whole, {"n": 3}), (each, {"n": len(each), "guidance": 1.5})):
        file.write_text(json.dumps(rows))
        drawn = [sample.text for sample in generate(model, hints=rows, sampler="roar", **options)]
        words = flags({"sampler": "roar", "hints": file, **options})
        assert shell("sample", *words) == drawn
        assert all(text[1] == ("a" if rows is whole else "t") for text in drawn)


def test_plain_hints_are_hint_objects(model: str) -> None:
    """Text names tokens: a is 0, b is 1, the space is 26."""
    found = read_hints(load(model), [[*HINTS.values()]])[0]
    assert found == [
        Unknown(),
        Known(0),
        Known(0),
        Confident(0, 0.8),
        Observed(0, 5.0),
        Allowed((23, 24)),
        NBest({0: 0.6, 1: 0.3}),
        (NBest({0: 0.6, 1: 0.3}), Allowed((1, 2))),
    ]
    assert read_hints(load(model), found) == [found]  # objects stay as they are


@pytest.mark.parametrize(
    "entry, message",
    [
        ("ab", "row 1, position 2: 'ab' must be one token of .*, got 2 tokens"),
        ("é", "row 1, position 2: .*outside the model's vocabulary"),
        (5, "row 1, position 2: expected null, a token .*; got 5"),
        ({"token": "a", "confidence": 2}, "row 1, position 2: confidence must lie in 0 … 1"),
        ({"token": "a", "confident": 1}, "row 1, position 2: expected null.*; got {'token'"),
        ({"token": 5}, "row 1, position 2: a token must be written as text, got 5"),
        ({"allowed": "ab"}, "row 1, position 2: allowed must be a list of tokens, got 'ab'"),
        ({"allowed": []}, "row 1, position 2: .* at least one token"),
        ({"n_best": {"a": 0.7, "b": 0.7}}, "row 1, position 2: .* sum to at most 1"),
        ({"n_best": ["a"]}, "row 1, position 2: expected null"),
        ([["a"]], "row 1, position 2: expected null.*; got \\['a'\\]"),
    ],
)
def test_wrong_hints_are_named(entry: Any, message: str, model: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_hints(load(model), [["a", None, None], ["a", None, entry]])


def test_files_of_hints_are_checked(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "hints.json", tmp_path / "samples.jsonl"
    words = ["sample", "--model", model, "--hints", str(file)]
    for content, more, message in (
        ("[", [], "is not JSON"),
        ("[]", [], "at least one position, got none"),
        ("5", [], "hints must be a list"),
        ('["a"]', ["--prompt", "b"], "a prompt or --hints, not both"),
        ('[["a"], ["b"]]', ["-n", "3"], "one sequence or all 3, got 2"),
    ):
        file.write_text(content)
        assert main([*words, *more]) == 1
        assert message in capsys.readouterr().err
    for content, status in (('["a", null]', 0), ('["a", null]', 0), ('["b", null]', 1)):
        file.write_text(content)
        assert main([*words, "--out", str(out)]) == status, "other hints are another request"


@pytest.mark.parametrize("name", [field.name for field in fields(InfillOptions)])
def test_infilling_is_the_same(name: str, model: str, shell: Shell) -> None:
    options: dict[str, Any] = {"n": 2, name: VALUES[name]}
    drawn = [sample.text for sample in infill("the [4] of", model, **options)]
    assert shell("infill", "the [4] of", *flags(options)) == drawn


def test_several_prompts_and_texts_are_the_same(model: str, shell: Shell, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("the \nof \n")
    drawn = generate(model, prompts=["the ", "of "], length=10, sampler="mdlm@4", n=2)
    words = ["sample", "--prompts", str(lines), "--length", "10", "--sampler", "mdlm@4", "-n", "2"]
    assert shell(*words) == [sample.text for sample in drawn]
    lines.write_text("the [3]\nof [2] \n")
    filled = infill(["the [3]", "of [2] "], model, n=2)
    assert shell("infill", "--file", str(lines), "-n", "2") == [s.text for s in filled]


def test_options_are_written_once() -> None:
    """The signature of a function and the flags of its command come from one class."""
    for function, kind in ((generate, SampleOptions), (infill, InfillOptions)):
        parameters = inspect.signature(function).parameters
        for field in fields(kind):
            assert parameters[field.name].default == field.default, field.name
            assert f"{field.name}:" in (function.__doc__ or ""), field.name
    assert {field.name for field in fields(DrawOptions)} < {f.name for f in fields(SampleOptions)}


def test_an_option_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'temprature'"):
        generate("oracle:cyclic-7", temprature=1.0)
