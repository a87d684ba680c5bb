"""Text cut into blocks of one length."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch

from dsl.types import Tokens

Encode = Callable[[str], list[int]]


def read_texts(path: Path, *, separate_lines: bool) -> list[str]:
    """Read a text file, or the "text" of every line of a .jsonl file.

    A vocabulary without a newline cannot hold two lines, so `separate_lines` makes each a text.
    """
    if not path.is_file():
        raise FileNotFoundError(f"no corpus at {str(path)!r}")
    try:
        content = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}") from error
    if path.suffix != ".jsonl":
        return content.split("\n") if separate_lines else [content]
    texts = []
    # not splitlines(), which would also cut inside texts, at characters JSON leaves as they are
    for number, line in enumerate(content.removesuffix("\n").split("\n"), 1):
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {number}, is not JSON: {error}") from error
        if isinstance(record, dict) and isinstance(record.get("text"), str):
            texts.append(record["text"])
        elif not (number == 1 and isinstance(record, dict) and "about" in record):
            raise ValueError(f'{path}, line {number}, has no "text"')
    return texts


def cut(
    texts: Iterable[str],
    encode: Encode,
    length: int,
    ends: tuple[Sequence[int], Sequence[int]] = ((), ()),
) -> Tokens:
    """Encode every text and cut it into blocks with these specials at their ends.

    What is left of each text is dropped.
    """
    rows: list[list[int]] = []
    tokens, payload = 0, length - len(ends[0]) - len(ends[1])
    if payload < 1:
        raise ValueError(f"a block of {length} tokens has no room for text")
    for text in texts:
        ids = encode(text)
        tokens += len(ids)
        whole = len(ids) - len(ids) % payload
        pieces = (ids[begin : begin + payload] for begin in range(0, whole, payload))
        rows += [[*ends[0], *piece, *ends[1]] for piece in pieces]
    if not rows:
        raise ValueError(
            f"the corpus is shorter than a block: it has {tokens} tokens, a block {payload}"
        )
    return torch.tensor(rows)
