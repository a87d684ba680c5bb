"""Changes of a recipe on the command line: --set key=value."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from dsl.training import recipe as recipes
from tests.fuzz.cases import ODD, fuzz, texts

pytestmark = pytest.mark.slow

KEYS = ["trainer.steps", "trainer.micro_batch", "data.length", "data.validation", "data.corpus",
        "optimizer.lr", "optimizer.beta1", "model", "model.hidden_dim", "model.dropout", "smoke",
        "objective", "objective.kind", "objective.loss", "trainer", "data", "needs_init", "", ".",
        "a.b.c", "trainer.steps.x"]  # fmt: skip
VALUES = ["5", "1e-3", "[", "{", "{kind: mdlm}", "{kind: []}", "&a [*a]", "true", "a", "[1, 2]",
          "2020-13-45", "{a: {b: {c: 1}}}", "ar", *ODD]  # fmt: skip
VALID = ["trainer.steps=100", "optimizer.lr=1e-3", "objective=mdlm", "model={hidden_dim: 64}"]
written = st.builds("{}={}".format, st.sampled_from(KEYS), st.sampled_from(VALUES))
FOUND = [
    ["trainer.steps=["],
    ["trainer.micro_batch=0"],
    ["data.validation=0"],
    ["trainer.steps=&a [*a]"],
    ["trainer.batch=1000000000"],
    ["optimizer.beta1=5"],
    ["x" * 10_000],
    ["x" * 10_000 + "=" + "y" * 10_000],
    ["trainer.steps=" + "[" * 10_000],
]


def test_changes_are_made_or_refused() -> None:
    path = recipes.find("cyclic")

    def read(changes: list[str]) -> None:
        recipe = recipes.read(path, changes, smoke=len(changes) % 2 == 0)
        recipe.objective.family.shape(27, recipe.data.length, recipe.model)

    changes = st.lists(written | texts(VALID) | st.text(max_size=20), min_size=1, max_size=3)
    fuzz("changes", changes, read, FOUND)
