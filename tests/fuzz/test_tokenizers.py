"""tokenizer.json, and what is done with one that was read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import strategies as st

from dsl.data import tokenizers
from tests.fuzz.cases import anything, dumped, fuzz, mutated, swapped

pytestmark = pytest.mark.slow

PIECES = [bytes([byte]) for byte in range(256)] + [b"ab", b"abc", b" a"]
VALID = [
    made.to_str().encode()
    for made in (
        tokenizers.characters("abc "),
        tokenizers.mdlm_text8(),
        tokenizers.byte_level(),
        tokenizers.gpt2(PIECES),
    )
]
FOUND = [
    VALID[1].replace(b'"special_tokens":{', b'"special_tokens":{},"x":{'),  # made the library panic
    b'{"version": "1.0", "truncation": {"a\\nb": 1}}',
]


def test_a_tokenizer_is_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / tokenizers.TOKENIZER

    def read(content: bytes) -> None:
        path.write_bytes(content)
        tokenizer = tokenizers.read(path)
        before, after = tokenizers.ends(tokenizer)
        assert len(before) <= 1 and len(after) <= 1
        ids = tokenizers.encode(tokenizer, "ab c")
        assert tokenizers.decode(tokenizer, ids) == "ab c"
        tokenizers.decode(tokenizer, list(range(len(tokenizer.get_vocab()))))

    parsed = [json.loads(content) for content in VALID]
    structured = (swapped(parsed) | anything).map(dumped)
    fuzz("tokenizers", st.one_of(mutated(VALID), structured), read, FOUND)
