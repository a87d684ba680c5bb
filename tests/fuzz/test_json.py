"""JSON that somebody else may have written, and YAML that is JSON."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from dsl._util import config as strict
from dsl._util.files import parse_json
from tests.fuzz.cases import anything, dumped, fuzz, mutated

pytestmark = pytest.mark.slow

VALID = [b'{"a": [1, 2.5, "x"], "b": {"c": null}}', b'{"text": "a\\u00e9\\ud83d\\ude42"}', b"[[1]]"]
FOUND = [
    b"[" * 200_000, b'{"a":' * 100_000, b'{"a": 1, "a": 2}', b'"\\ud800"', b"1" * 5000, b"\xff",
    b'{"' + b"k" * 5000 + b'": 1, "' + b"k" * 5000 + b'": 2}',
]  # fmt: skip
contents = st.one_of(mutated(VALID), anything.map(dumped), st.binary(max_size=40))


def test_json_is_data_or_a_mistake() -> None:
    def read(content: bytes) -> None:
        for unique in (True, False):
            dumped(parse_json(content, "it", unique=unique)).decode("utf-8")

    fuzz("json", contents, read, FOUND, share=0.6)


def test_json_in_yaml_is_data_or_a_mistake() -> None:
    def read(content: bytes) -> None:
        strict.parse_yaml(content.decode("utf-8", errors="replace"), "it")

    fuzz("json", contents, read, FOUND, share=0.4)
