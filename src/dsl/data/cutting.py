"""Tokenizers by merges, cut to some of their pieces: those that a text needs most."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from tokenizers import AddedToken, Tokenizer, processors

from dsl.data.tokenizers import encode


def most_frequent(tokenizer: Tokenizer, texts: Iterable[str]) -> list[int]:
    """Return the tokens of texts, the most frequent first."""
    counts = Counter(token for text in texts for token in encode(tokenizer, text))
    return [token for token, _ in sorted(counts.items(), key=lambda found: (-found[1], found[0]))]


def cut(
    tokenizer: Tokenizer, wanted: Iterable[int], most: int, end: int
) -> tuple[Tokenizer, list[int]]:
    """Take tokens in the order given, each with all it is merged from, while there is room.

    Return the smaller tokenizer, and the ids that its tokens had before.

    A text whose tokens are all taken then has the same tokens as before.

    Args:
        tokenizer: A tokenizer by merges, such as GPT-2's or a llama's.
        wanted: Tokens, the most wanted first.
        most: How many there may be, the end included.
        end: The token that ends a text.
    """
    state: dict[str, Any] = json.loads(tokenizer.to_str())
    model = state["model"]
    if model["type"] != "BPE":
        raise ValueError(f"only tokenizers by merges can be cut, got one of kind {model['type']}")
    vocabulary: dict[str, int] = model["vocab"]
    text_of = {index: text for text, index in vocabulary.items()}
    special = tokenizer.id_to_token(end)
    pairs = [tuple(m) if isinstance(m, list) else tuple(m.split(" ", 1)) for m in model["merges"]]
    rank = {pair: place for place, pair in enumerate(pairs)}
    added = {token["content"] for token in state["added_tokens"]}
    merged = {a + b for a, b in pairs}
    # what is made of nothing spells everything else
    taken = {text for text in vocabulary if text not in merged and text not in added}
    if len(taken) + 1 > most:
        raise ValueError(
            f"a vocabulary must hold the {len(taken)} signs that spell everything and an end, "
            f"got room for {most}"
        )
    for token in wanted:
        text = text_of.get(token)
        if text is None or text in added:
            continue
        parts = _derivation(text, rank)
        if len(taken | parts) + 1 <= most:
            taken |= parts
    kept = sorted(vocabulary[text] for text in taken)
    smaller = {text_of[token]: place for place, token in enumerate(kept)}
    model["vocab"] = smaller
    model["merges"] = [[a, b] for a, b in pairs if {a, b, a + b} <= smaller.keys()]
    model["unk_token"] = None
    state["added_tokens"], state["post_processor"] = [], None
    made = Tokenizer.from_str(json.dumps(state))
    made.add_special_tokens([AddedToken(special)])
    made.post_processor = processors.TemplateProcessing(
        single=f"$A {special}", special_tokens=[(special, len(kept))]
    )
    return made, [*kept, end]


def _derivation(text: str, rank: dict[tuple[str, ...], int]) -> set[str]:
    """Return every piece that merging makes on its way to a piece, its characters included."""
    parts, met = list(text), {*text}
    while len(parts) > 1:
        ranks = [rank.get(pair, len(rank)) for pair in pairwise(parts)]
        lowest = min(range(len(ranks)), key=ranks.__getitem__)
        if ranks[lowest] == len(rank):
            break
        parts[lowest : lowest + 2] = [parts[lowest] + parts[lowest + 1]]
        met.add(parts[lowest])
    return met
