"""config.json of a model, of every family."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from dsl.families import registry as table
from dsl.models import folder
from tests.fuzz.cases import anything, dumped, fuzz, mutated, swapped

pytestmark = pytest.mark.slow

SIZES = {"hidden_dim": 8, "n_blocks": 1, "n_heads": 2, "cond_dim": 4}
HUGE = [0, -1, 1, 3, 1000, 2**22, 10**9, 2**31, 10**23, 1e9, 0.5, float("nan"), float("inf"), "8",
        None, [], {}, True]  # fmt: skip
FOUND = [b'{"vocab_size": ' + b"9" * 5000 + b"}", b"[" * 100_000, b'{"kind": []}', b"null", b"5",
         b"{" + b",".join(b'"k%d": 1' % i for i in range(50_000)) + b', "k49999": 2}']  # fmt: skip


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A tiny model of every family."""
    places = {}
    for name, family in table.FAMILIES.items():
        places[name] = tmp_path_factory.mktemp(name)
        family.write(family.build(family.shape(5, 6, SIZES)), places[name])
    return places


def test_a_config_is_a_model_or_a_mistake(models: dict[str, Path]) -> None:
    valid = {name: (place / folder.CONFIG).read_bytes() for name, place in models.items()}
    parsed: list[dict[str, Any]] = [json.loads(content) for content in valid.values()]
    changed = st.builds(
        lambda config, key, value: dumped({**config, key: value}),
        st.sampled_from(parsed),
        st.sampled_from(sorted({key for config in parsed for key in config})),
        st.sampled_from(HUGE),
    )

    def read(case: tuple[str, bytes]) -> None:
        name, content = case
        (models[name] / folder.CONFIG).write_bytes(content)
        table.read(models[name])

    contents = st.one_of(
        mutated(list(valid.values())), changed, (swapped(parsed) | anything).map(dumped)
    )
    cases = st.tuples(st.sampled_from(sorted(models)), contents)
    fuzz("configs", cases, read, [("dsl", content) for content in FOUND])
