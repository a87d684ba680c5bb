"""Blocks of tokens to be scored: of texts, of a file, or spread over a split of a corpus."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from dsl._util.validate import whole_number
from dsl.checkpoints.loading import Model
from dsl.core.types import Row, Tokens
from dsl.data.blocks import cut, read_texts
from dsl.data.catalogue import CORPORA
from dsl.data.corpora import prepare
from dsl.data.documents import Documents, Kind, blocks
from dsl.data.windows import tokenise

DEFAULT_LIMIT = 256
"""Blocks that are taken from a corpus if no limit is given."""

Source = Literal["sentence", "file", "corpus"]
"""Where text comes from: the text itself, a file read from its beginning, or a corpus."""


def source_of(name: str, split: str | None = None) -> Source:
    """Tell a sentence, a file and a corpus apart. A file with a named split is a corpus."""
    if split is not None or name in CORPORA:
        return "corpus"
    path = Path(name)
    if " " in name.strip() and not path.exists():
        return "sentence"
    if path.suffix in (".txt", ".jsonl"):
        return "file"
    return "file" if path.is_file() and path.suffix != ".parquet" else "corpus"


def read(
    model: Model, name: str, split: str | None, length: int, limit: int | None, cache: Path
) -> tuple[Tokens, Int[Tensor, "n l"]]:
    """Return blocks to score, and spare blocks for choices that must not be made on those.

    The first blocks of a text or .jsonl file are scored, and the others are spare. Of a corpus, or
    of a file with a named split, blocks are spread evenly over the split (by default test), and the
    spare ones come from the validation split.
    """
    if source_of(name, split) == "file":
        return read_file(model, Path(name), length, limit)
    return read_corpus(model, name, split, length, limit, cache)


def read_file(
    model: Model, path: Path, length: int, limit: int | None
) -> tuple[Tokens, Int[Tensor, "n l"]]:
    """Return the first blocks of a file, and those after them."""
    texts = read_texts(path, separate_lines=not model.can_say("\n"))
    if model.documents:
        rows = _documents(model, texts, length)
    else:
        rows = cut(texts, model.encode, length, model.ends)
    scored = rows[:limit]
    return scored, rows[len(scored) :]


def read_corpus(
    model: Model, name: str, split: str | None, length: int, limit: int | None, cache: Path
) -> tuple[Tokens, Int[Tensor, "n l"]]:
    """Return blocks spread over a split, and some of the validation split."""
    if model.tokenizer is None:
        raise ValueError(f"{model.name} has no tokenizer, so it cannot read {name!r}")
    prepared = prepare(name, cache)

    def spread(part: str, n: int) -> Tokens:
        assert model.tokenizer is not None
        tokens = tokenise(prepared, part, model.tokenizer)
        kind: Kind = "documents" if model.documents else "wrap"
        return blocks(prepared, tokens, length, kind, ends=model.ends, share=model.share).spread(n)

    return spread(split or "test", limit or DEFAULT_LIMIT), spread("validation", 16)


def _documents(model: Model, texts: Sequence[str], length: int) -> Tokens:
    """Make every non-empty text a document."""
    ids = [token for text in texts if text for token in (*model.encode(text), *model.ends[1])]
    found = Documents(np.array(ids, dtype=np.int64), length, model.ends, model.share)
    return found.first(len(found.spans))


def blocks_of(
    model: Model, texts: Sequence[str], length: int | None = None
) -> tuple[list[Row], list[int]]:
    """Cut texts into blocks with the model's special tokens; return them and the text of each.

    For a model of documents every text is a document: an end token and padding follow it.
    """
    longest = model.length if length is None else whole_number("length", length, least=1)
    before, after = model.ends
    room = longest - len(before) - (0 if model.documents else len(after))
    if room < 1:
        raise ValueError(f"a block of {longest} tokens has no room for text")
    rows, owners = [], []
    for number, text in enumerate(texts):
        ids = model.encode(text)
        if not ids:
            raise ValueError("texts must not be empty, got an empty one")
        for begin in range(0, len(ids), room):
            piece = [*before, *ids[begin : begin + room]]
            ending = _padding(model, longest - len(piece)) if model.documents else after
            rows.append(torch.tensor([*piece, *ending]))
            owners.append(number)
    return rows, owners


def _padding(model: Model, left: int) -> list[int]:
    """Return the end of a document, and padding unless another document may follow."""
    return model.ends[1] * (min(1, left) if model.share else left)
