"""Blocks of tokens to be judged: from a file, or spread over the split of a corpus."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int
from torch import Tensor

from dsl.checkpoints.loading import Model
from dsl.core.types import Tokens
from dsl.data.blocks import cut, read_texts
from dsl.data.catalogue import CORPORA
from dsl.data.corpora import prepare
from dsl.data.documents import Documents, Kind, blocks
from dsl.data.windows import tokenise

DEFAULT_LIMIT = 256
"""Blocks that are taken from a corpus if no limit is given."""


def read(
    model: Model, corpus: str, split: str | None, length: int, limit: int | None, cache: Path
) -> tuple[Tokens, Int[Tensor, "n l"]]:
    """Return the blocks to be judged and some others, for choices that must not be made on them.

    Of a text or .jsonl file, the first blocks are judged and the rest are the others. Of a corpus,
    or of a file when a split is named, the judged ones are spread evenly over the split (test if
    not said) and the others come from its validation split.
    """
    if not is_corpus(corpus, split):
        path = Path(corpus)
        texts = read_texts(path, separate_lines=not model.can_say("\n"))
        found = _documents(model, texts, length) if model.documents else None
        rows = cut(texts, model.encode, length, model.ends) if found is None else found
        judged = rows[:limit]
        return judged, rows[len(judged) :]
    if model.tokenizer is None:
        raise ValueError(f"{model.name} has no tokenizer, so it cannot read {corpus!r}")
    prepared = prepare(corpus, cache)

    def spread(name: str, n: int) -> Tokens:
        assert model.tokenizer is not None
        tokens = tokenise(prepared, name, model.tokenizer)
        kind: Kind = "documents" if model.documents else "wrap"
        return blocks(prepared, tokens, length, kind, ends=model.ends, share=model.share).spread(n)

    return spread(split or "test", limit or DEFAULT_LIMIT), spread("validation", 16)


def _documents(model: Model, texts: Sequence[str], length: int) -> Tokens:
    """Make every text that is not empty a document."""
    ids = [token for text in texts if text for token in (*model.encode(text), *model.ends[1])]
    found = Documents(np.array(ids, dtype=np.int64), length, model.ends, model.share)
    return found.first(len(found.spans))


def is_sentence(name: str, split: str | None = None) -> bool:
    """Whether what was given is the text itself: no file, no corpus, and more than one word."""
    return split is None and " " in name.strip() and not Path(name).exists()


def is_corpus(name: str, split: str | None = None) -> bool:
    """Whether blocks come spread over a split: not so of a text or .jsonl file, unless asked."""
    path = Path(name)
    looks_like_a_file = path.is_file() or path.suffix in (".txt", ".jsonl")
    return (
        split is not None or name in CORPORA or not looks_like_a_file or path.suffix == ".parquet"
    )
