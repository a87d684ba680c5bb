"""Recipes: each trains a model of every family, and a mistake in one is a line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dsl._util import config as strict
from dsl.cli.main import main
from dsl.families.registry import FAMILIES
from dsl.training import recipe as recipes
from tests.families.conftest import NAMED
from tests.training.conftest import CYCLIC, settings, train

MISTAKES = [
    ("trainer.setps=3", "setps"),
    ("trainer.steps=many", "expected int, got 'many' @ $.trainer.steps"),
    ("trainer.steps=0", "trainer.steps must be at least 1, got 0"),
    ("trainer.steps=[", "the value of trainer.steps is not valid YAML"),
    ("trainer.steps={a: 1", "the value of trainer.steps is not valid YAML"),
    ("trainer.steps=" + 2000 * "[", "the value of trainer.steps is not valid YAML"),
    ("trainer.steps=&a [*a]", "the value of trainer.steps is not valid YAML"),
    ("trainer.steps=1" + 30 * "0", "expected an int of 64 bits"),
    ("trainer.steps=true", "expected int, got True"),
    ("trainer.steps=2001-99-99", "the value of trainer.steps is not valid YAML"),
    ("trainer.steps", "a change must be key=value"),
    ("trainer.micro_batch=0", "trainer.micro_batch must be at least 1, got 0"),
    ("trainer.batch=-1", "trainer.batch must be at least 1, got -1"),
    ("trainer.seed=-1", "trainer.seed must be at least 0, got -1"),
    ("trainer.precision=fp8", "precision"),
    ("optimizer.ema=[0.9, 0.9]", "distinct numbers, got (0.9, 0.9)"),
    ("optimizer.ema=[]", "ema must be one number or distinct numbers"),
    ("objective.draws=even", "expected one of 'independent', 'stratified', 'antithetic'"),
    ("objective.warp=5", "warp"),
    ("objective.warp={bins: 1}", "a warp needs bins in 2"),
    ("trainer=5", "trainer"),
    ("trainer.steps.more=5", "not a field of the recipe"),
    ("optimizer.lr=.inf", "expected a finite number"),
    ("model=[]", "model"),
    ("model.hiden_dim=3", "unknown key 'hiden_dim'"),
    ("model.hidden_dim=wide", "expected int, got 'wide'"),
    ("model.n_blocks=1000000000", "n_blocks"),
    ("data.corpus=texd8", "unknown corpus 'texd8'"),
    ("data.windows=round", "windows"),
    ("data.validation=0", "data.validation must be at least 1, got 0"),
    ("data.probes=spelling", "probes"),
    ("data.length=0", "data.length must be at least 1, got 0"),
    ("objective=rnn", f"objective must be one of {', '.join(FAMILIES)}; got 'rnn'"),
    ("objective=[]", "objective must be a name or a mapping"),
    ("objective={kind: []}", "objective must be one of"),
    ("objective={kind: ar, power: 2}", "unknown key 'power'"),
    ("objective={kind: vp, power: 0}", "power be at least 1"),
]


@pytest.mark.parametrize("change, message", MISTAKES, ids=[text[:40] for text, _ in MISTAKES])
def test_a_mistake_in_a_recipe_is_one_line(
    change: str,
    message: str,
    tmp_path: Path,
    cache: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert train(tmp_path / "run", cache, *settings(change)) == 1
    said = capsys.readouterr()
    (line,) = said.err.splitlines()
    assert line.startswith("dsl train: ") and message in line
    assert len(line) < 1000 and not said.out


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[",
        b"5",
        b"\xff",
        b"data: &a {corpus: *a}",
        b"{data: {corpus: cyclic-7}}",
        b"- " * 999,
    ],
)
def test_a_file_that_is_no_recipe_is_one_line(
    content: bytes, tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_bytes(content)
    job = ["train", str(file), "--out", str(tmp_path / "run"), "--cache", str(cache)]
    assert main(job) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"dsl train: {file}")


PATHS = sorted(recipes.RECIPES.glob("*.yaml"))


def smoke(path: Path, out: Path, cache: Path, *changes: str) -> None:
    """Train by a recipe, and check that the run holds it with all its defaults."""
    arguments = ["train", str(path), "--smoke", "--out", str(out), "--cache", str(cache)]
    assert main([*arguments, *settings(*changes)]) == 0
    assert recipes.read(path, changes, smoke=True) == recipes.read(out / "recipe.yaml")


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_every_recipe_can_be_trained(path: Path, tmp_path: Path, cache: Path) -> None:
    smoke(path, tmp_path, cache)


@pytest.mark.parametrize("kind", [kind for kind in NAMED if kind != "dsl"])
def test_every_family_can_be_trained(kind: str, tmp_path: Path, cache: Path) -> None:
    smoke(CYCLIC, tmp_path, cache, f"objective={kind}")


@pytest.mark.parametrize("kind", NAMED)
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_every_recipe_suits_every_family(path: Path, kind: str) -> None:
    """Its model can be built, and the recipe can be written and read again."""
    own = recipes.read(path, smoke=True)
    if own.objective.family.name == kind:
        recipe = own
    else:
        recipe = recipes.read(path, [f"objective={kind}"], smoke=True)
    family = recipe.objective.family
    assert family is FAMILIES[kind]
    network = family.build(family.shape(30, recipe.data.length, recipe.model))
    assert family.objective(network, recipe.objective.options) is not None
    assert recipes.from_data(strict.parse_yaml(recipes.write(recipe), "it"), "it") == recipe


def test_bundled_recipes_have_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "no-such", "--out", str(tmp_path / "run")]) == 1
    assert (
        "expected a YAML file or one of cyclic, english-tiny, moses-tiny, owt-finetune"
        in capsys.readouterr().err
    )
    assert recipes.find("cyclic") == CYCLIC


def test_a_bundled_mdlm_is_converted_and_fine_tuned(
    tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The two commands of the docs, shortened; the endpoint logits are MDLM's."""
    assert main(["convert", "mdlm", "text8-tiny-mdlm", str(tmp_path / "from"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parity_at_mask_bias_50"] < 1e-4
    job = ["train", "text8-tiny-finetune", "--init", str(tmp_path / "from"), "--cache", str(cache)]
    short = ["trainer.steps=2", "trainer.batch=2", "data.corpus=python-docs", "data.validation=2"]
    assert main([*job, "--out", str(tmp_path / "run"), *settings(*short)]) == 0
    assert "initialised with the weights of" in capsys.readouterr().err


def test_an_objective_by_name_can_be_changed_too() -> None:
    """`objective: mdlm` stands for a mapping, in the file and on the command line."""
    path = recipes.RECIPES / "stories-mdlm.yaml"
    changed = recipes.read(path, ["objective.weight=plain"]).objective
    assert changed.family is FAMILIES["mdlm"] and changed.options.weight == "plain"
    other = recipes.read(path, ["objective=dsl", "objective.masked_only=true"]).objective
    assert other.family is FAMILIES["dsl"] and other.options.masked_only
