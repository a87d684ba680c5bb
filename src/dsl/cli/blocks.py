"""Blocks of tokens that a verb was given: from a file, or spread over the split of a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dsl.loading import Model
    from dsl.types import Tokens

DEFAULT_LIMIT = 256
"""Blocks that are taken from a corpus if no limit is given."""


def read(
    model: Model, corpus: str, split: str | None, length: int, limit: int | None, cache: Path | None
) -> tuple[Tokens, Tokens]:
    """Return the blocks to be judged and some others, for choices that must not be made on them.

    Of a text or .jsonl file, the first blocks are judged and the rest are the others. Of a corpus,
    or of a file when a split is named, the judged ones are spread evenly over the split (test if
    not said) and the others come from its validation split.
    """
    from dsl.cli.data import default_cache
    from dsl.data.blocks import cut, read_texts
    from dsl.data.catalogue import RECIPES
    from dsl.data.corpora import prepare
    from dsl.data.windows import Windows, tokenise

    path = Path(corpus)
    looks_like_a_file = path.is_file() or path.suffix in (".txt", ".jsonl")
    if split is None and corpus not in RECIPES and looks_like_a_file and path.suffix != ".parquet":
        texts = read_texts(path, separate_lines=not model.can_say("\n"))
        blocks = cut(texts, model.encode, length, model.ends)
        judged = blocks[:limit]
        return judged, blocks[len(judged) :]
    if model.tokenizer is None:
        raise ValueError(f"{model.name} has no tokenizer, so it cannot read {corpus!r}")
    found = prepare(corpus, cache or default_cache())

    def spread(name: str, n: int) -> Tokens:
        assert model.tokenizer is not None
        return Windows(tokenise(found, name, model.tokenizer), length, ends=model.ends).spread(n)

    return spread(split or "test", limit or DEFAULT_LIMIT), spread("validation", 16)
