"""Corpora: text, .jsonl and .parquet files."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pytest
from hypothesis import strategies as st

from dsl.data import tokenizers
from dsl.data.blocks import read_texts
from dsl.data.corpora import prepare, verify
from dsl.data.windows import Windows, tokenise
from tests.fuzz.cases import fuzz, mutated

pytestmark = pytest.mark.slow

TEXT = "naïve cafés, and a 🙂 more\nthe second line\n" * 4
JSON = b'{"text": "a first one"}\n{"text": "caf\\u00e9s"}\n{"text": "", "x": [1]}\n'


def parquet() -> bytes:
    arrow = pytest.importorskip("pyarrow", reason="the extra 'data' is not installed")
    from pyarrow import parquet

    file = io.BytesIO()
    table = arrow.table({"text": ["a first one", None, "cafés"], "n": [1, 2, 3]})
    parquet.write_table(table, file)
    return file.getvalue()


def prepared(tmp_path: Path, suffix: str, content: bytes) -> None:
    """Make a corpus of a file, check it, and cut it into windows."""
    path, cache = tmp_path / f"corpus{suffix}", tmp_path / "cache"
    path.write_bytes(content)
    try:
        corpus = prepare(str(path), cache)
        verify(corpus)
        tokens = tokenise(corpus, "train", tokenizers.byte_level())
        assert Windows(tokens, 4).first(2).shape[1] == 4
        corpus.characters()
    finally:
        shutil.rmtree(cache, ignore_errors=True)


@pytest.mark.parametrize("suffix", [".txt", ".jsonl"])
def test_texts_are_read_or_refused(tmp_path: Path, suffix: str) -> None:
    valid = TEXT.encode() if suffix == ".txt" else JSON

    def read(content: bytes) -> None:
        prepared(tmp_path, suffix, content)
        for separate in (True, False):
            read_texts(tmp_path / f"corpus{suffix}", separate_lines=separate)

    cases = st.one_of(mutated([valid]), st.binary(max_size=80))
    fuzz("corpora", cases, read, [b"\xed\xa0\x80 x", b"\0" * 40, b'"\\ud800"\n'], share=0.35)


def test_parquet_is_read_or_refused(tmp_path: Path) -> None:
    cases = st.one_of(mutated([parquet()]), st.binary(max_size=80))
    fuzz("corpora", cases, lambda content: prepared(tmp_path, ".parquet", content), share=0.3)
