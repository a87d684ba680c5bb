"""The same call gives the same text in Python and in the shell, whatever the options are."""

from __future__ import annotations

import inspect
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from dsl.cli.main import main
from dsl.generation import DrawOptions, InfillOptions, SampleOptions, generate, infill

VALUES: dict[str, Any] = {
    "n": 3,
    "sampler": "roar",
    "temperature": 0.5,
    "top_p": 0.5,
    "guidance": 1.5,
    "seed": 7,
    "batch_size": 2,
    "length": 12,
    "prompt": "the ",
    "suffix": " of",
    "match": "[a-m ]*",
    "stride": 8,
    "ending": "unknown",
}
"""A value for every option, other than its default; `ending` has one that fits all models."""
MODEL = "text8-tiny"


def flags(options: dict[str, Any]) -> list[str]:
    """Write options as words of a command line."""
    found: list[str] = []
    for name, value in options.items():
        found += ["-n" if name == "n" else f"--{name.replace('_', '-')}", str(value)]
    return found


def shell(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main([*words, "--model", MODEL, "--json"]) == 0
    found: list[str] = json.loads(capsys.readouterr().out)["samples"]
    return found


def test_every_option_has_a_value_here() -> None:
    names = {field.name for kind in (SampleOptions, InfillOptions) for field in fields(kind)}
    assert names == set(VALUES)


@pytest.mark.parametrize("name", [field.name for field in fields(SampleOptions)])
def test_sampling_is_the_same(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"length": 12, "sampler": "mdlm@4", "n": 2, "prompt": "a"}
    if name == "match":
        options |= {"sampler": "causal", "prompt": "", "length": 6}
    if name == "stride":
        options |= {"length": 264, "sampler": "mdlm@2"}
    options |= {name: VALUES[name]}
    drawn = [sample.text for sample in generate(MODEL, **options)]
    assert shell(capsys, "sample", *flags(options)) == drawn
    assert len(drawn) == options["n"]


@pytest.mark.parametrize("name", [field.name for field in fields(InfillOptions)])
def test_infilling_is_the_same(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    options: dict[str, Any] = {"n": 2, name: VALUES[name]}
    drawn = [sample.text for sample in infill("the [4] of", MODEL, **options)]
    assert shell(capsys, "infill", "the [4] of", *flags(options)) == drawn


def test_several_prompts_and_texts_are_the_same(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("the \nof \n")
    drawn = generate(MODEL, prompts=["the ", "of "], length=10, sampler="mdlm@4", n=2)
    words = ["sample", "--prompts", str(lines), "--length", "10", "--sampler", "mdlm@4", "-n", "2"]
    assert shell(capsys, *words) == [sample.text for sample in drawn]
    lines.write_text("the [3]\nof [2] \n")
    filled = infill(["the [3]", "of [2] "], MODEL, n=2)
    assert shell(capsys, "infill", "--file", str(lines), "-n", "2") == [s.text for s in filled]


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
