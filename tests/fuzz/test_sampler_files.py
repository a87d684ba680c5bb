"""Samplers as YAML or JSON files, and what they build."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import strategies as st

from dsl.samplers import registry as presets
from dsl.samplers.specification import from_data, read_file, to_data
from tests.fuzz.cases import anything, dumped, fuzz, mutated, swapped
from tests.fuzz.walking import walk

pytestmark = pytest.mark.slow

NAMES = ["mdlm@4", "fb@4", "dfm@4", "remdm-cap@4", "remdm-conf@4", "remdm-loop@4", "roar", "edm@3",
         "first-hitting@4", "localize@4", "hybrid@2+2", "vp@4"]  # fmt: skip
VALID = [to_data(presets.sampler(name)) for name in NAMES]
FOUND = [
    b"kind: Chain\nsamplers: 5\n",
    b"&a\nkind: Chain\nsamplers: [*a]\n",
    b"kind: []\n",
    b"kind: Ancestral\nnum_steps: 8\nremask: 5\n",
    b"kind: Ancestral\nnum_steps: 8\nremask: {kind: []}\n",
    b"kind: Ancestral\nnum_steps: 999999999999\n",
    b"kind: Localize\nnum_steps: 4\n",
    b"kind: Edm\nnum_steps: 4\nrho: 0\n",
    b"kind: Localize\nnum_steps: 4\nsnr_max: 1e200\n",
    b'{"kind": "Ancestral", "num_steps": 4, "path": "' + b"x" * 5000 + b'"}',
]


def test_a_file_is_a_sampler_or_a_mistake(tmp_path: Path) -> None:
    path = tmp_path / "sampler.yaml"

    def read(content: bytes) -> None:
        path.write_bytes(content)
        sampler = read_file(path)
        assert from_data(to_data(sampler)) == sampler
        walk(sampler)

    valid = [yaml.safe_dump(data).encode() for data in VALID] + [dumped(data) for data in VALID]
    structured = (swapped(VALID) | anything).map(dumped)
    fuzz("sampler_files", st.one_of(mutated(valid), structured), read, FOUND)
