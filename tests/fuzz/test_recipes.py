"""Recipes as YAML."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import strategies as st

from dsl._util import config as strict
from dsl.training import recipe as recipes
from tests.fuzz.cases import anything, fuzz, mutated, swapped

pytestmark = pytest.mark.slow

FILES = sorted(recipes.RECIPES.glob("*.yaml"))
VALID = [strict.read_yaml(path) for path in FILES]
BOMB = "a: &a [x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
FOUND = [
    b"&a {data: *a}", BOMB.encode(), b"[" * 50_000, b"- " * 20_000, b"!!int ''", b"!!bool x",
    b"!!timestamp 5", b"a: 1\na: 2", b"data: 2020-99-99", b"\xff", b"", b"? [a]\n: b",
    b"{" + b",".join(b"k%d: 1" % i for i in range(5000)) + b"}",
]  # fmt: skip


def yaml_of(data: object) -> bytes:
    return yaml.safe_dump(data, sort_keys=False).encode("utf-8", errors="replace")


def test_a_recipe_is_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"

    def read(content: bytes) -> None:
        path.write_bytes(content)
        recipe = recipes.read(path)
        family = recipe.objective.family
        family.shape(27, recipe.data.length, recipe.model)
        path.write_text(recipes.write(recipe), encoding="utf-8")
        assert recipes.read(path) == recipe

    damaged = mutated([path.read_bytes() for path in FILES])
    structured = (swapped(VALID) | anything).map(yaml_of)
    fuzz("recipes", st.one_of(damaged, structured), read, FOUND)
